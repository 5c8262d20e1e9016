// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "contract/device_contract/copies.hpp"
#include "contract/device_contract/events.hpp"
#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/lifetime.hpp"
#include "contract/device_contract/memory.hpp"
#include "contract/device_contract/order_between_streams.hpp"
#include "contract/device_contract/order_within_a_stream.hpp"
#include "contract/device_contract/subject.hpp"
#include "contract/device_contract/threads.hpp"
#include "contract/device_contract/timelines.hpp"
#include "support/catch.hpp"

/// The requirements on every device. The test file of a device defines a subject and runs all
/// checks:
///
///     struct host_subject {
///       using device_type = penstock::cpu_device;
///       device_type device() const;                                    // the device under test
///       void launch(stream_ref, std::function<void()> work) const;     // queues work on a stream
///     };
///     TEST_CASE("a CPU device keeps the contract of devices", "[contract]") {
///       contract::run_all(host_subject{});
///     }
///
/// The function `launch`, which is not part of the concept, queues work that runs on the host in
/// stream order and may block. The checks use `launch` to block a stream, check that later work has
/// not run, and release the stream. Checks never wait for blocked work to begin, because a device
/// may run work as late as its order allows. Launched work does not call the device.
namespace contract {

template <subject S>
struct check {
  const char* name;
  void (*run)(const S&);
};

/// All checks. A device that fulfills the contract passes all of them.
template <subject S>
inline constexpr check<S> checks[] = {
    {"work of one stream runs in order", work_of_one_stream_runs_in_order<S>},
    {"an idle stream is synchronized at once", an_idle_stream_is_synchronized_at_once<S>},
    {"two streams do not wait for each other", two_streams_do_not_wait_for_each_other<S>},
    {"copies move the bytes and no other", copies_move_the_bytes_and_no_other<S>},
    {"copies of one stream run in order", copies_of_one_stream_run_in_order<S>},
    {"a copy reads its source in stream order", a_copy_reads_its_source_in_stream_order<S>},
    {"a copy waits for held work, and the caller does not",
     a_copy_waits_for_held_work_and_the_caller_does_not<S>},
    {"an event that was never recorded is complete",
     an_event_that_was_never_recorded_is_complete<S>},
    {"an event is complete when the work before its record is done",
     an_event_is_complete_when_the_work_before_its_record_is_done<S>},
    {"an event recorded on an idle stream completes by itself",
     an_event_recorded_on_an_idle_stream_completes_by_itself<S>},
    {"an event for streams alone may be waited for by a thread",
     an_event_for_streams_alone_may_be_waited_for_by_a_thread<S>},
    {"recording again moves the mark", recording_again_moves_the_mark<S>},
    {"synchronizing an event waits for what came before its record",
     synchronizing_an_event_waits_for_what_came_before_its_record<S>},
    {"synchronizing an event does not wait for what came after its record",
     synchronizing_an_event_does_not_wait_for_what_came_behind_its_record<S>},
    {"synchronizing a stream waits for all of its work",
     synchronizing_a_stream_waits_for_all_of_its_work<S>},
    {"a stream waits for the record of another", a_stream_waits_for_the_record_of_another<S>},
    {"a wait does not wait for what comes after the record",
     a_wait_does_not_wait_for_what_comes_behind_the_record<S>},
    {"work given after an event is complete needs no wait",
     work_given_after_an_event_is_complete_needs_no_wait<S>},
    {"work given before a wait does not wait", work_given_before_a_wait_does_not_wait<S>},
    {"a later record does not prolong a wait", a_later_record_does_not_prolong_a_wait<S>},
    {"a later record does not cut a wait short", a_later_record_does_not_cut_a_wait_short<S>},
    {"a wait before the first record waits for nothing",
     a_wait_before_the_first_record_waits_for_nothing<S>},
    {"a stream may wait for its own record", a_stream_may_wait_for_its_own_record<S>},
    {"order carries through a chain of three streams",
     order_carries_through_a_chain_of_three_streams<S>},
    {"a stream may wait for several others", a_stream_may_wait_for_several_others<S>},
    {"two streams take turns by two events", two_streams_take_turns_by_two_events<S>},
    {"a stream that is destroyed waits for its work",
     a_stream_that_is_destroyed_waits_for_its_work<S>},
    {"events outlive their streams", events_outlive_their_streams<S>},
    {"a wait outlives its event", a_wait_outlives_its_event<S>},
    {"a stream moves with its work", a_stream_moves_with_its_work<S>},
    {"assigning to a stream waits for the work it had",
     assigning_to_a_stream_waits_for_the_work_it_had<S>},
    {"an event moves with its record", an_event_moves_with_its_record<S>},
    {"a copy of the handle is the same device", a_copy_of_the_handle_is_the_same_device<S>},
    {"device memory is aligned to 256 bytes, and all there",
     device_memory_is_aligned_to_256_bytes_and_all_there<S>},
    {"pinned memory is aligned to 256 bytes, and the host's to write",
     pinned_memory_is_aligned_to_256_bytes_and_the_hosts_to_write<S>},
    {"an impossible size is out of memory, and named",
     a_size_that_nobody_has_is_out_of_memory_and_says_how_much<S>},
    {"a stream takes work from several threads", a_stream_takes_work_from_several_threads<S>},
    {"threads work on streams of their own", threads_work_on_streams_of_their_own<S>},
    {"a thread may enter more than once", a_thread_may_enter_more_than_once<S>},
    {"an event may be recorded again while threads wait for it",
     an_event_may_be_recorded_again_while_threads_wait_for_it<S>},
    {"a point is reached when the work before its mark is done",
     a_point_is_reached_when_the_work_before_its_mark_is_done<S>},
    {"a point whose event was recorded again is not reached too early",
     a_point_whose_event_was_recorded_again_is_not_reached_too_early<S>},
    {"a later point implies the earlier points", a_later_point_implies_the_earlier_points<S>},
    {"a stream waits for a point of another", a_stream_waits_for_a_point_of_another<S>},
    {"threads mark and wait at once", threads_mark_and_wait_at_once<S>},
    {"a timeline outlives its stream", a_timeline_outlives_its_stream<S>},
};

/// Runs every check as a section of the calling test case.
template <subject S>
void run_all(const S& s) {
  for (const auto& one : checks<S>) {
    DYNAMIC_SECTION(one.name) { one.run(s); }
  }
}

}  // namespace contract
