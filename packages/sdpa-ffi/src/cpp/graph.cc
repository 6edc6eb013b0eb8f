#include "graph.h"

#include <cudnn_frontend.h>

#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

// With dynamic loading cudnn-frontend resolves every cuDNN function from this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace sdpa_ffi {
namespace {

namespace fe = cudnn_frontend;
using Json = nlohmann::json;

// Keys that cudnn-frontend reads unconditionally; a const lookup of an absent one is undefined.
constexpr const char* kRequiredKeys[] = {"cudnn_backend_data", "behavior_notes",
                                         "variant_pack_uids", "variant_pack_replacements",
                                         "fe_workspace_size"};

// Starts a blob whose plan is a Python engine of cudnn-frontend.
constexpr std::string_view kPythonPlanMagic = "CUDNN_FE_PYPLAN";

// By value: the accessors of cudnn-frontend 1.28's error are not const.
Status FromFrontend(const char* action, fe::error_t error) {
  if (error.is_good()) return Status();
  return RuntimeFailure("cuDNN could not ", action, ": ", error.get_message(),
                        " (cudnn-frontend error ", static_cast<int>(error.get_code()), ")");
}

// Turns what cudnn-frontend and its JSON library throw into a status.
template <typename Body>
auto Guarded(const char* action, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const Json::exception& error) {
    return InvalidArgument("malformed graph in the plan: ", error.what());
  } catch (const std::exception& error) {
    return RuntimeFailure("cuDNN could not ", action, ": ", error.what());
  }
}

void UseLibrary(const CudnnLibrary& cudnn) {
  static std::once_flag once;
  std::call_once(once, [&cudnn] { fe::cudnn_dlhandle = cudnn.dl_handle(); });
}

Status CheckBlob(const Json& json) {
  const auto writer = json.find("cudnn_frontend_version");
  for (const char* key : kRequiredKeys) {
    if (!json.contains(key)) {
      return InvalidArgument(
          "the graph in the plan lacks '", key, "'; it was written by cudnn-frontend ",
          writer == json.end() ? "?" : writer->dump(), ", this executor has ",
          CUDNN_FRONTEND_VERSION, "; rebuild the plan, or upgrade with: pip install -U sdpa-ffi");
    }
  }
  if ((json.contains("nodes") || json.contains("tensors")) && !json.contains("gid")) {
    return InvalidArgument("the graph in the plan has a structure but no 'gid'");
  }
  return Status();
}

// Looks at a blob without keeping any of it. The JSON library's reader recurses once per level and
// reserves what a container announces, so a small blob could exhaust the stack or the memory.
class Modest final : public nlohmann::json_sax<Json> {
 public:
  explicit Modest(std::size_t blob_bytes) : blob_bytes_(blob_bytes) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t elements) override { return Enter(elements); }
  bool start_array(std::size_t elements) override { return Enter(elements); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    message_ = error.what();
    return false;
  }

  const std::string& message() const { return message_; }

 private:
  static constexpr int kMaxDepth = 64;  // the graphs of cudnn-frontend stay far below

  bool Enter(std::size_t elements) {
    constexpr auto kUnknown = static_cast<std::size_t>(-1);
    if (++depth_ <= kMaxDepth && (elements == kUnknown || elements <= blob_bytes_)) return true;
    message_ = "nested too deeply, or a container larger than the blob";
    return false;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  const std::size_t blob_bytes_;
  int depth_ = 0;
  std::string message_;
};

Result<Json> ParseBlob(const std::vector<std::uint8_t>& blob) {
  const std::string_view text(reinterpret_cast<const char*>(blob.data()), blob.size());
  if (text.substr(0, kPythonPlanMagic.size()) == kPythonPlanMagic) {
    return InvalidArgument(
        "the plan is a Python engine of cudnn-frontend, which only Python can run; build it with "
        "the backend's engines");
  }
  Modest modest(blob.size());
  if (!Json::sax_parse(blob, &modest, Json::input_format_t::ubjson)) {
    return InvalidArgument("malformed graph in the plan: ", modest.message());
  }
  Json json = Json::from_ubjson(blob);
  SDPA_FFI_RETURN_IF_ERROR(CheckBlob(json));
  return json;
}

// What cudnn-frontend does to the workspace before each run, by operand: [kind, offset, floats].
constexpr char kWorkspaceWork[] = "workspace_modifications";
constexpr int kCopiesFloats = 0;
constexpr int kLeavesAlone = 2;

// Takes the copies out of `json`, so that cudnn-frontend does not make them: 1.28 copies from
// memory that it frees at once, which a CUDA graph reads at each replay (1.32 keeps it).
std::vector<Graph::HostCopy> TakeHostCopies(Json& json) {
  std::vector<Graph::HostCopy> copies;
  if (!json.contains(kWorkspaceWork)) return copies;
  for (Json& work : json[kWorkspaceWork]) {
    if (work.at(0).get<int>() != kCopiesFloats) continue;
    copies.push_back({work.at(1).get<std::uint64_t>(), work.at(2).get<std::vector<float>>()});
    work.at(0) = kLeavesAlone;
  }
  return copies;
}

}  // namespace

struct Graph::Impl {
  fe::graph::Graph graph;
  std::vector<HostCopy> host_copies;
  std::vector<std::int64_t> uids;
  std::uint64_t workspace_bytes = 0;

  Status Finish() {
    std::int64_t bytes = 0;
    SDPA_FFI_RETURN_IF_ERROR(FromFrontend("size the workspace", graph.get_workspace_size(bytes)));
    if (bytes < 0) return InvalidArgument("the plan's workspace has ", bytes, " bytes");
    workspace_bytes = static_cast<std::uint64_t>(bytes);
    uids = graph.get_variant_pack_uids_sorted();
    for (const HostCopy& copy : host_copies) {
      const std::uint64_t size = copy.values.size() * sizeof(float);
      if (size > workspace_bytes || copy.offset > workspace_bytes - size) {
        return InvalidArgument("the plan wants ", size, " bytes at ", copy.offset,
                               " of a workspace of ", workspace_bytes, " bytes");
      }
    }
    return Status();
  }
};

Graph::Graph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Graph::~Graph() = default;

Result<std::unique_ptr<Graph>> Graph::Load(const CudnnLibrary& cudnn,
                                           const std::vector<std::uint8_t>& blob,
                                           CudnnHandle handle) {
  constexpr char kAction[] = "load the plan";
  return Guarded(kAction, [&]() -> Result<std::unique_ptr<Graph>> {
    UseLibrary(cudnn);
    SDPA_FFI_ASSIGN_OR_RETURN(Json json, ParseBlob(blob));
    auto impl = std::make_unique<Impl>();
    impl->host_copies = TakeHostCopies(json);
    // No warm-up: it captures on the handle's stream, allocates, and runs with dummy pointers.
    SDPA_FFI_RETURN_IF_ERROR(
        FromFrontend(kAction, impl->graph.deserialize(handle, json, /*enforce_precompiled=*/true,
                                                      /*run_warmup=*/false)));
    SDPA_FFI_RETURN_IF_ERROR(impl->Finish());
    return std::unique_ptr<Graph>(new Graph(std::move(impl)));
  });
}

Result<std::unique_ptr<Graph>> Graph::LoadDeviceless(const CudnnLibrary& cudnn,
                                                     const std::vector<std::uint8_t>& blob,
                                                     const std::string& device_properties) {
  constexpr char kAction[] = "verify the plan";
  return Guarded(kAction, [&]() -> Result<std::unique_ptr<Graph>> {
    UseLibrary(cudnn);
    SDPA_FFI_ASSIGN_OR_RETURN(const Json json, ParseBlob(blob));
    auto device = std::make_shared<fe::DeviceProperties>();
    SDPA_FFI_RETURN_IF_ERROR(
        FromFrontend("read the device properties",
                     device->deserialize({device_properties.begin(), device_properties.end()})));
    auto impl = std::make_unique<Impl>();
    impl->graph.set_device_properties(device);
    SDPA_FFI_RETURN_IF_ERROR(
        FromFrontend(kAction, impl->graph.deserialize(blob, /*enforce_precompiled=*/true)));
    SDPA_FFI_RETURN_IF_ERROR(impl->Finish());
    return std::unique_ptr<Graph>(new Graph(std::move(impl)));
  });
}

std::uint64_t Graph::workspace_bytes() const { return impl_->workspace_bytes; }
const std::vector<Graph::HostCopy>& Graph::host_copies() const { return impl_->host_copies; }
const std::vector<std::int64_t>& Graph::uids() const { return impl_->uids; }

Status Graph::Execute(CudnnHandle handle, Span<void*> pointers, void* workspace) const {
  constexpr char kAction[] = "run the plan";
  return Guarded(kAction, [&] {
    return FromFrontend(kAction, impl_->graph.execute(handle, pointers.data,
                                                      static_cast<int>(pointers.size), workspace));
  });
}

std::uint32_t CompiledFrontendVersion() { return CUDNN_FRONTEND_VERSION; }

}  // namespace sdpa_ffi
