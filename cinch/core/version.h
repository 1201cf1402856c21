#pragma once

namespace cinch {
inline constexpr char kVersion[] = "0.1.0";
}
