// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <numeric>
#include <vector>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void work_of_one_stream_runs_in_order(const S& s) {
  const auto device = s.device();
  std::vector<int> seen;
  auto stream = device.make_stream();
  for (int i = 0; i < 1000; ++i) s.launch(stream, [&seen, i] { seen.push_back(i); });
  device.synchronize(typename S::device_type::stream_ref{stream});
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
}

template <subject S>
void an_idle_stream_is_synchronized_at_once(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  using ref = typename S::device_type::stream_ref;
  device.synchronize(ref{stream});
  device.synchronize(ref{stream});
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  device.synchronize(ref{stream});
  CHECK(ran);
}

template <subject S>
void two_streams_do_not_wait_for_each_other(const S& s) {
  const auto device = s.device();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  held.on(s, first);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  // If the stream waited for the blocked work, this call would hang.
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran);
  held.let_go();
}

}  // namespace contract
