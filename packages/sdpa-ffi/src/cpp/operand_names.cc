#include "operand_names.h"

#include <mutex>
#include <utility>

#include "status.h"

namespace sdpa_ffi {
namespace {

struct Roles {
  std::mutex mutex;
  std::map<std::int64_t, std::string> by_uid;  // guarded by mutex
};

// Leaked: threads of the frameworks may outlive static destruction.
Roles& TheRoles() {
  static auto* roles = new Roles;
  return *roles;
}

}  // namespace

std::string OperandName(std::int64_t uid) {
  auto& roles = TheRoles();
  std::lock_guard<std::mutex> lock(roles.mutex);
  const auto found = roles.by_uid.find(uid);
  return found == roles.by_uid.end() ? Concat("uid ", uid)
                                     : Concat(found->second, " (uid ", uid, ")");
}

void SetOperandRoles(std::map<std::int64_t, std::string> roles) {
  auto& known = TheRoles();
  std::lock_guard<std::mutex> lock(known.mutex);
  known.by_uid = std::move(roles);
}

}  // namespace sdpa_ffi
