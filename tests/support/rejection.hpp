// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

#include <penstock/core/error.hpp>

#include "support/catch.hpp"

namespace test {

/// The message and the option name of the `option_error` that `call` throws. Both are "none" if the
/// call does not throw.
struct rejection {
  std::string text = "none";
  std::string option = "none";
};
template <class Call>
rejection rejection_of(const Call& call) {
  try {
    call();
    return {};
  } catch (const penstock::option_error& error) {
    CHECK(std::string{error.what()}.starts_with(error.option() + ": "));
    return {error.what(), error.option()};
  }
}

}  // namespace test
