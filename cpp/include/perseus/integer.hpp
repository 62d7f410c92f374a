// Integer types of the solver: everything inside is exact.
#pragma once

#include <cstdint>
#include <type_traits>

namespace perseus {

// 128 bits: energies, and flows whose dynamic range is too large for 64 bits.
__extension__ using Int128 = __int128;

// Time in quanta (see quantization.hpp).
using Time = std::int64_t;

// A length that no path reaches: marks a residual arc that does not exist.
inline constexpr Time kNoLength = Time{1} << 61;

// Capacity of an arc that is never saturated. Two of them can be added without overflow.
template <class Flow>
inline constexpr Flow kInfiniteFlow = static_cast<Flow>(Flow{1} << (sizeof(Flow) * 8 - 2));

}  // namespace perseus
