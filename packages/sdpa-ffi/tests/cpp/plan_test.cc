#include "plan.h"

#include <doctest/doctest.h>

#include <limits>
#include <utility>

#include "container.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

Result<Plan> Parse(const Bytes& bytes) { return ParsePlan({bytes.data(), bytes.size()}); }

std::string Refusal(const Bytes& bytes) {
  const Status status = Parse(bytes).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

// Offsets of the header's fields that are structure; those in between only inform.
struct Field {
  const char* name;
  std::size_t at;
  std::size_t width;
  const char* refusal;  // null: any value is legal there
};

constexpr Field kFields[] = {
    {"magic", 0, 8, "does not start with SDPAPLAN"},
    {"format", 8, 4, "format"},
    {"header_bytes", 12, 4, "header_bytes is"},
    {"blob_bytes", 16, 8, "header and blob need"},
    {"cudnn_version", 32, 4, nullptr},
    {"frontend_version", 36, 4, nullptr},
    {"sm", 40, 4, nullptr},
    {"sm_count", 44, 4, nullptr},
    {"binding_count", 48, 4, "bindings"},
    {"reserved", 52, 4, "reserved field is not zero"},
    {"sha256", 88, 8, "sha256 of its contents does not match"},
};

std::uint64_t Get(const Bytes& bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value |= std::uint64_t{bytes[at + i]} << (8 * i);
  return value;
}

TEST_CASE("plan: a container is read as it was written") {
  const Plan plan = Container().ToPlan();
  CHECK(plan.header.workspace_bytes == 256);
  CHECK(plan.header.cudnn_version == 91900);
  CHECK(plan.header.frontend_version == 13200);
  CHECK(plan.header.sm == 90);
  CHECK(plan.header.sm_count == 132);
  CHECK(plan.header.engine == "eng9_k24=7");
  CHECK(plan.header.bindings.size() == 4);
  CHECK(plan.header.device_operands() == 3);
  CHECK(plan.header.bindings[2].zero_fill);
  CHECK(plan.blob == Blob({1, 4, 9, 100}));
}

TEST_CASE("plan: every header field, changed, is refused or is what it now says") {
  const Bytes good = Container().ToBytes();
  for (const Field& field : kFields) {
    CAPTURE(field.name);
    const std::uint64_t value = Get(good, field.at, field.width);
    const std::uint64_t top = field.width == 8 ? ~std::uint64_t{0} : 0xffffffffu;
    for (const std::uint64_t changed :
         {value + 1, value - 1, value ^ 0x80, std::uint64_t{0}, top, top / 2, top / 2 + 1}) {
      CAPTURE(changed);
      if ((changed & top) == value) continue;
      Bytes bytes = good;
      Put(&bytes, field.at, changed, field.width);
      if (field.refusal == nullptr) {
        CHECK(Parse(bytes).ok());
      } else {
        const std::string message = Refusal(bytes);
        CHECK_MESSAGE(Contains(message, field.refusal), message);
      }
    }
  }
}

TEST_CASE("plan: a workspace beyond 2^63 - 1 bytes is refused") {
  Container container;
  container.workspace_bytes = std::uint64_t{1} << 63;
  CHECK(Contains(Refusal(container.ToBytes()), "claims a workspace of"));
  container.workspace_bytes -= 1;
  CHECK(Parse(container.ToBytes()).ok());
}

TEST_CASE("plan: a flipped byte is refused, or is one that only informs") {
  const Bytes good = Container().ToBytes();
  for (std::size_t at = 0; at < good.size(); ++at) {
    CAPTURE(at);
    Bytes bytes = good;
    bytes[at] ^= 0x01;
    const bool informs = (24 <= at && at < 48) || (56 <= at && at < 88);
    const bool name = 120 <= at && at < 152;
    if (informs) {
      CHECK(Parse(bytes).ok());
    } else if (!name) {  // a name is refused only if zeros come before its end
      CHECK_FALSE(Parse(bytes).ok());
    }
  }
}

TEST_CASE("plan: every truncation and every extension is refused") {
  const Bytes good = Container().ToBytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    // A copy of exactly that size, so that AddressSanitizer sees a read past its end.
    CHECK_FALSE(Parse(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))).ok());
  }
  Bytes longer = good;
  longer.push_back(0);
  CHECK(Contains(Refusal(longer), "header and blob need"));
}

TEST_CASE("plan: the tables of bindings that are refused, with a correct hash") {
  const std::pair<BindingRecord, const char*> wrong[] = {
      {{1, 8, 3, 0, 2}, "unknown kind 3"},
      {{1, 8, 0xffffffff, 0, 2}, "unknown kind 4294967295"},
      {{1, 8, 0, 0, 0}, "unknown dtype 0"},
      {{1, 8, 0, 0, 12}, "unknown dtype 12"},
      {{1, 8, 1, 2, 2}, "unknown flags"},
      {{1, 8, 0, 0, 2, 1}, "nonzero reserved field"},
      {{1, std::uint64_t{1} << 63, 0, 0, 2}, "claims 9223372036854775808 bytes"},
      {{1, 8, 0, 1, 2}, "is zero-filled but is no output"},
      {{1, 4, 2, 0, 3}, "host scalar"},
      {{1, 0, 2, 0, 2}, "host scalar"},
  };
  for (const auto& [record, refusal] : wrong) {
    CAPTURE(refusal);
    Container container;
    container.bindings = {record};
    const std::string message = Refusal(container.ToBytes());
    CHECK_MESSAGE(Contains(message, refusal), message);
  }
}

TEST_CASE("plan: uids must ascend strictly, over all of int64") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  Container container;
  container.bindings = {{kLeast, 8, 0, 0, 2}, {-1, 8, 0, 0, 2}, {kMost, 8, 0, 0, 2}};
  CHECK(Parse(container.ToBytes()).ok());
  container.bindings = {{5, 8, 0, 0, 2}, {5, 8, 0, 0, 2}};
  CHECK(Contains(Refusal(container.ToBytes()), "ascend strictly"));
  container.bindings = {{kMost, 8, 0, 0, 2}, {kLeast, 8, 0, 0, 2}};
  CHECK(Contains(Refusal(container.ToBytes()), "ascend strictly"));
}

TEST_CASE("plan: 128 bindings are the most") {
  Container container;
  container.bindings.clear();
  for (std::int64_t uid = 0; uid < 128; ++uid) container.bindings.push_back({uid, 8, 0, 0, 2});
  CHECK(Parse(container.ToBytes()).ok());
  container.bindings.push_back({128, 8, 0, 0, 2});
  CHECK(Contains(Refusal(container.ToBytes()), "129 bindings"));
}

TEST_CASE("plan: the engine's name fills its field or is padded with zeros") {
  Container container;
  container.engine = std::string(32, 'e');
  CHECK(container.ToPlan().header.engine == container.engine);
  container.engine = std::string("a\0b", 3);
  CHECK(Contains(Refusal(container.ToBytes()), "not NUL padded"));
}

TEST_CASE("plan: what a plan is called by covers the header and what follows") {
  const Plan plan = Container().ToPlan();
  Container other;
  other.fingerprint = 8;
  CHECK(plan.header.identity == Container().ToPlan().header.identity);
  CHECK(plan.header.identity != other.ToPlan().header.identity);
  other = Container();
  other.blob = Blob({1, 4, 9, 101});
  CHECK(plan.header.identity != other.ToPlan().header.identity);
}

TEST_CASE("plan: SHA-256 of the standard's examples") {
  const auto hex = [](const std::string& text) {
    const Digest digest = Sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    std::string digits;
    for (const std::uint8_t byte : digest) {
      digits += "0123456789abcdef"[byte >> 4];
      digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
  };
  CHECK(hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace sdpa_ffi::testing
