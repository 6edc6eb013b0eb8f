#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_library.h"
#include "span.h"
#include "status.h"

namespace sdpa_ffi {

// A cuDNN graph with its plan, read from a blob of cudnn-frontend.
//
// graph.cc is the only translation unit that includes cudnn-frontend: its headers take most of a
// minute to compile, and it throws, which nothing outside should have to know.
class Graph {
 public:
  // Reads `blob` for the device of `handle`.
  static Result<std::unique_ptr<Graph>> Load(const CudnnLibrary& cudnn,
                                             const std::vector<std::uint8_t>& blob,
                                             CudnnHandle handle);

  // Reads `blob` for a described device; needs no GPU, and the graph cannot run.
  static Result<std::unique_ptr<Graph>> LoadDeviceless(const CudnnLibrary& cudnn,
                                                       const std::vector<std::uint8_t>& blob,
                                                       const std::string& device_properties);

  ~Graph();

  // Numbers that must lie in the workspace when the plan runs: ALiBi's slopes, for one.
  struct HostCopy {
    std::uint64_t offset;  // in the workspace, in bytes
    std::vector<float> values;
  };

  std::uint64_t workspace_bytes() const;
  const std::vector<HostCopy>& host_copies() const;  // the caller's to make, before Execute
  const std::vector<std::int64_t>& uids() const;     // what Execute wants, ascending

  // Enqueues the plan on the handle's stream. `pointers` are in the order of uids(); a scalar's
  // entry points to host memory. Thread safe as long as handles and workspaces differ.
  Status Execute(CudnnHandle handle, Span<void*> pointers, void* workspace) const;

 private:
  struct Impl;
  explicit Graph(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// The version of the cudnn-frontend headers compiled in: major * 10000 + minor * 100 + patch.
std::uint32_t CompiledFrontendVersion();

}  // namespace sdpa_ffi
