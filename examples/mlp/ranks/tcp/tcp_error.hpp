// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>

namespace mlp {

/// A connection that can't be made, has ended, has not answered in time, or says what can't be. The
/// message names the peer as host:port and what was being done.
class tcp_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Another rank has said why it ends.
class rank_failure : public tcp_error {
 public:
  using tcp_error::tcp_error;
};

}  // namespace mlp
