// The execute of cuDNN's frontend in C++: what the executor of sdpa-ffi calls, without the
// executor. `data` is the frontend's serialized graph.
#include "loop.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace {

namespace fe = cudnn_frontend;

void Check(fe::error_t error) {
  if (error.is_bad()) throw std::runtime_error(error.get_message());
}

class FrontendLoop final : public Loop {
 public:
  explicit FrontendLoop(const LoopPlan& plan)
      : pointers_(plan.pointers, plan.pointers + plan.count), workspace_(plan.workspace) {
    fe::cudnn_dlhandle = OpenLibrary(plan.libcudnn);
    const auto* blob = static_cast<const std::uint8_t*>(plan.data);
    ::Check(fe::detail::create_handle(&handle_), "create a handle");
    ::Check(fe::detail::set_stream(handle_, static_cast<cudaStream_t>(plan.stream)),
            "set the stream");
    Check(graph_.deserialize(handle_, nlohmann::json::from_ubjson(blob, blob + plan.bytes),
                             /*enforce_precompiled=*/true, /*run_warmup=*/false));
    if (graph_.get_variant_pack_uids_sorted() !=
        std::vector<std::int64_t>(plan.uids, plan.uids + plan.count)) {
      throw std::runtime_error("these are not the graph's operands");
    }
  }
  ~FrontendLoop() override { fe::detail::destroy_handle(handle_); }

  void Execute() override {
    Check(
        graph_.execute(handle_, pointers_.data(), static_cast<int>(pointers_.size()), workspace_));
  }

  void ExecuteAgain() override { Execute(); }

 private:
  cudnnHandle_t handle_ = nullptr;
  fe::graph::Graph graph_;
  std::vector<void*> pointers_;
  void* workspace_;
};

}  // namespace

Loop* MakeLoop(const LoopPlan& plan) { return new FrontendLoop(plan); }
