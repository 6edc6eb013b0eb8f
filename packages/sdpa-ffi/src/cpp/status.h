#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace sdpa_ffi {

// What went wrong decides which Python exception or XLA error code a caller sees.
enum class StatusCode {
  kOk,
  kInvalidArgument,  // a malformed plan, or operands that do not fit it
  kEnvironment,      // libraries, driver or device are absent or of the wrong version
  kRuntime,          // cuDNN or CUDA failed although everything was in order
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, Concat(parts...));
}

template <typename... Parts>
Status EnvironmentError(const Parts&... parts) {
  return Status(StatusCode::kEnvironment, Concat(parts...));
}

template <typename... Parts>
Status RuntimeFailure(const Parts&... parts) {
  return Status(StatusCode::kRuntime, Concat(parts...));
}

// A value, or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : content_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status() : std::get<Status>(content_); }
  T& value() { return std::get<T>(content_); }

 private:
  std::variant<T, Status> content_;
};

#define SDPA_FFI_RETURN_IF_ERROR(expression)                        \
  do {                                                              \
    if (::sdpa_ffi::Status status_ = (expression); !status_.ok()) { \
      return status_;                                               \
    }                                                               \
  } while (false)

#define SDPA_FFI_CONCAT_INNER(a, b) a##b
#define SDPA_FFI_CONCAT(a, b) SDPA_FFI_CONCAT_INNER(a, b)
#define SDPA_FFI_ASSIGN_OR_RETURN_NAMED(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!result.ok()) {                                                    \
    return result.status();                                              \
  }                                                                      \
  declaration = std::move(result.value())
#define SDPA_FFI_ASSIGN_OR_RETURN(declaration, expression) \
  SDPA_FFI_ASSIGN_OR_RETURN_NAMED(SDPA_FFI_CONCAT(result_, __LINE__), declaration, expression)

}  // namespace sdpa_ffi
