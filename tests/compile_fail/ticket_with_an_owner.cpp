// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <memory>
#include <string>

#include <penstock/threads/batch_queue.hpp>

namespace ps = penstock;

struct ticket {
  std::uint32_t slot;
};

void use() {
  ps::batch_queue<ticket> queue{4};
  ps::batch_queue<std::shared_ptr<int>> owners{4};  // expected-error: queue_ticket
  ps::batch_queue<std::string> strings{4};  // expected-error: queue_ticket
}
