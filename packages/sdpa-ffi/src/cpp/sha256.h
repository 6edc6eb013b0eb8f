#pragma once

#include <array>
#include <cstdint>

#include "span.h"

namespace sdpa_ffi {

using Digest = std::array<std::uint8_t, 32>;

// SHA-256 (FIPS 180-4). Written out here because the module must not depend on a crypto library;
// it guards against corruption, not against an attacker.
Digest Sha256(Span<const std::uint8_t> bytes);

}  // namespace sdpa_ffi
