#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sdpa_ffi {

// What people call an operand: "query (uid 1)", or "uid 1" where its role is not known. The
// executor knows numbers only; the roles are sdpa_core's and come from Python, for messages.
std::string OperandName(std::int64_t uid);

void SetOperandRoles(std::map<std::int64_t, std::string> roles);

}  // namespace sdpa_ffi
