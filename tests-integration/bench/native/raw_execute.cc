// cuDNN's C interface and nothing else: a variant pack for each call, and cudnnBackendExecute.
// `data` is cuDNN's own JSON of the plan.
#include "loop.h"

namespace {

struct Cudnn {
  explicit Cudnn(void* library)
      : create(Symbol<decltype(create)>(library, "cudnnCreate")),
        destroy(Symbol<decltype(destroy)>(library, "cudnnDestroy")),
        set_stream(Symbol<decltype(set_stream)>(library, "cudnnSetStream")),
        create_descriptor(
            Symbol<decltype(create_descriptor)>(library, "cudnnBackendCreateDescriptor")),
        destroy_descriptor(
            Symbol<decltype(destroy_descriptor)>(library, "cudnnBackendDestroyDescriptor")),
        set_attribute(Symbol<decltype(set_attribute)>(library, "cudnnBackendSetAttribute")),
        finalize(Symbol<decltype(finalize)>(library, "cudnnBackendFinalize")),
        execute(Symbol<decltype(execute)>(library, "cudnnBackendExecute")) {}

  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

class Descriptor {
 public:
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(cudnn) {
    Check(cudnn.create_descriptor(type, &descriptor_), "create a descriptor");
  }
  ~Descriptor() { cudnn_.destroy_descriptor(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    Check(cudnn_.set_attribute(descriptor_, name, type, count, values), "set an attribute");
  }
  void Finalize() { Check(cudnn_.finalize(descriptor_), "finalize a descriptor"); }
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  const Cudnn& cudnn_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

class Handle {
 public:
  Handle(const Cudnn& cudnn, void* stream) : cudnn_(cudnn) {
    Check(cudnn.create(&handle_), "create a handle");
    Check(cudnn.set_stream(handle_, static_cast<cudaStream_t>(stream)), "set the stream");
  }
  ~Handle() { cudnn_.destroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t get() const { return handle_; }

 private:
  const Cudnn& cudnn_;
  cudnnHandle_t handle_ = nullptr;
};

class RawLoop final : public Loop {
 public:
  explicit RawLoop(const LoopPlan& plan)
      : cudnn_(OpenLibrary(plan.libcudnn)),
        handle_(cudnn_, plan.stream),
        engine_(cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
        kept_(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR),
        uids_(plan.uids, plan.uids + plan.count),
        pointers_(plan.pointers, plan.pointers + plan.count),
        workspace_(plan.workspace) {
    cudnnHandle_t handle = handle_.get();
    engine_.Set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                static_cast<std::int64_t>(plan.bytes), plan.data);
    engine_.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    engine_.Finalize();
    Fill(kept_);
  }

  void Execute() override {
    Descriptor pack(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    Fill(pack);
    Run(pack);
  }

  void ExecuteAgain() override { Run(kept_); }

 private:
  void Fill(Descriptor& pack) {
    const auto count = static_cast<std::int64_t>(uids_.size());
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers_.data());
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids_.data());
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace_);
    pack.Finalize();
  }
  void Run(Descriptor& pack) {
    Check(cudnn_.execute(handle_.get(), engine_.get(), pack.get()), "execute");
  }

  Cudnn cudnn_;
  Handle handle_;
  Descriptor engine_;
  Descriptor kept_;
  std::vector<std::int64_t> uids_;
  std::vector<void*> pointers_;
  void* workspace_;
};

}  // namespace

Loop* MakeLoop(const LoopPlan& plan) { return new RawLoop(plan); }
