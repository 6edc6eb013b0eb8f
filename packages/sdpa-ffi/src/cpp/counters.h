#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sdpa_ffi {

// What the process's executor has done since the start. Relaxed throughout: the numbers are for
// people and order nothing.
struct Counters {
  using Count = std::atomic<std::uint64_t>;

  // Alone on its cache line: every call of every thread adds to it.
  alignas(64) Count executes{0};
  alignas(64) Count execute_failures{0};  // refused operands included
  Count zero_fills{0};                    // outputs cleared
  Count loads{0};                         // plans loaded; one found in the registry is not
  Count load_failures{0};                 // refused and malformed plans included
  Count handles_created{0};

  // Time spent in the stages of loading, failed ones included.
  Count parse_ns{0};        // reading containers and checking their hash
  Count handle_ns{0};       // cudnnCreate
  Count deserialize_ns{0};  // cudnn-frontend and cuDNN
  Count check_ns{0};        // versions, device, and the header against the graph
};

// Constant initialized and never destroyed: threads of the frameworks may outlive static
// destruction.
inline Counters counters;

inline void Add(Counters::Count& count, std::uint64_t amount = 1) {
  count.fetch_add(amount, std::memory_order_relaxed);
}

// Adds the time it exists to a counter of nanoseconds.
class StageTimer {
 public:
  explicit StageTimer(Counters::Count& nanoseconds) : nanoseconds_(nanoseconds) {}
  ~StageTimer() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    Add(nanoseconds_, static_cast<std::uint64_t>(
                          std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  Counters::Count& nanoseconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sdpa_ffi
