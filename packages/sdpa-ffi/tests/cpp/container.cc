#include "container.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sdpa_ffi::testing {
namespace {

// Universal Binary JSON, as far as a blob needs it.
class Ubjson {
 public:
  Ubjson& Raw(const std::string& text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }
  Ubjson& Key(const std::string& key) {
    return Raw("U").Raw(std::string(1, static_cast<char>(key.size()))).Raw(key);
  }
  Ubjson& Text(const std::string& text) { return Raw("S").Key(text); }
  Ubjson& Number(std::int64_t value) {
    Raw("L");
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes_.push_back(static_cast<std::uint8_t>(value >> shift));
    }
    return *this;
  }
  // As cudnn-frontend writes them: the bits, in hexadecimal.
  Ubjson& Float(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08X", bits);
    return Text(digits);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace

Bytes Blob(const std::vector<std::int64_t>& uids, const std::vector<HostNumbers>& numbers) {
  Ubjson json;
  json.Raw("{");
  json.Key("json_version").Text("2.0");
  json.Key("cudnn_frontend_version").Number(13200);
  json.Key("cudnn_backend_data").Text("a plan");
  json.Key("behavior_notes").Raw("[[]]");
  json.Key("variant_pack_uids").Raw("[");
  for (const std::int64_t uid : uids) json.Number(uid);
  json.Raw("]");
  json.Key("variant_pack_replacements").Raw("[]");
  json.Key("fe_workspace_size").Number(0);
  json.Key("workspace_modifications").Raw("{");
  for (const HostNumbers& some : numbers) {
    json.Key(std::to_string(some.uid)).Raw("[").Number(0).Number(some.offset).Raw("[");
    for (const float value : some.values) json.Float(value);
    json.Raw("]]");
  }
  json.Raw("}");
  return json.Raw("}").bytes();
}

void Put(Bytes* bytes, std::size_t at, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) {
    (*bytes)[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

void Seal(Bytes* container) {
  const Digest digest =
      Sha256({container->data() + kHeaderBytes, container->size() - kHeaderBytes});
  std::copy(digest.begin(), digest.end(), container->begin() + 88);
}

Bytes Container::ToBytes() const {
  Bytes bytes(kHeaderBytes + kBindingBytes * bindings.size());
  const std::string magic = "SDPAPLAN";
  std::copy(magic.begin(), magic.end(), bytes.begin());
  Put(&bytes, 8, 1, 4);
  Put(&bytes, 12, bytes.size(), 4);
  Put(&bytes, 16, blob.size(), 8);
  Put(&bytes, 24, workspace_bytes, 8);
  Put(&bytes, 32, cudnn_version, 4);
  Put(&bytes, 36, 13200, 4);
  Put(&bytes, 40, sm, 4);
  Put(&bytes, 44, 132, 4);
  Put(&bytes, 48, bindings.size(), 4);
  std::fill_n(bytes.begin() + 56, 32, fingerprint);
  std::copy(engine.begin(), engine.end(), bytes.begin() + 120);
  std::size_t at = kHeaderBytes;
  for (const BindingRecord& binding : bindings) {
    Put(&bytes, at, static_cast<std::uint64_t>(binding.uid), 8);
    Put(&bytes, at + 8, binding.bytes, 8);
    Put(&bytes, at + 16, binding.kind, 4);
    Put(&bytes, at + 20, binding.flags, 4);
    Put(&bytes, at + 24, binding.dtype, 4);
    Put(&bytes, at + 28, binding.reserved, 4);
    at += kBindingBytes;
  }
  bytes.insert(bytes.end(), blob.begin(), blob.end());
  Seal(&bytes);
  return bytes;
}

Plan Container::ToPlan() const {
  const Bytes bytes = ToBytes();
  auto plan = ParsePlan({bytes.data(), bytes.size()});
  if (!plan.ok()) std::abort();
  return std::move(plan.value());
}

}  // namespace sdpa_ffi::testing
