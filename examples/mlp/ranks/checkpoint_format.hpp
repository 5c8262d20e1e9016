// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint.hpp"
#include "step_options.hpp"

namespace mlp {

/// All bytes of a checkpoint's file.
[[nodiscard]] std::string format_checkpoint(const checkpoint& what);

/// The reverse, for a network of that precision; `file` is what errors name. Throws
/// `checkpoint_torn`, `checkpoint_of_another` and `checkpoint_too_new`.
[[nodiscard]] checkpoint parse_checkpoint(const std::filesystem::path& file, std::string_view text,
                                          precision_choice precision);

}  // namespace mlp
