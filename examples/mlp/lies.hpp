#pragma once

namespace mlp {

/// How a matrix lies in memory: as a product wants it, or with rows and columns exchanged.
enum class lies { straight, transposed };

}  // namespace mlp
