// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nanobind/nanobind.h>

#include <penstock/load/loader.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>

namespace nb = nanobind;
namespace ps = penstock;

/// A loader for a Python consumer. Waits without the GIL in slices, and checks for signals between
/// the slices, so that Ctrl-C ends the wait. Only the main thread may use the object.
template <class Loader>
class interruptible {
  using clock = std::chrono::steady_clock;

 public:
  explicit interruptible(Loader loader)
      : loader_(std::move(loader)), slots_(loader_.footprint().slot_count) {}
  interruptible(interruptible&&) = delete;
  ~interruptible() {
    const nb::gil_scoped_release unlocked;
    loader_.stop();
  }

  [[nodiscard]] const Loader& loader() const noexcept { return loader_; }

  /// Ends the current epoch, waits for its reads, and starts an epoch at batch `from`. Returns the
  /// serial number of the new epoch. After an epoch is abandoned, only batches that are already
  /// being prefetched are read.
  std::uint64_t start(const ps::batch_position& from) {
    const one_user inside{*this};
    {
      const nb::gil_scoped_release unlocked;
      loader_.stop();
    }
    loader_.start(from, from.epoch + 1);
    return ++serial_;
  }

  /// Returns the next batch of the epoch with the serial number `serial`, or an empty batch at the
  /// end. Propagates exceptions from the loader, and the Python exception that a signal handler
  /// raised.
  typename Loader::batch_type next(std::uint64_t serial) {
    if (serial != serial_) return {};
    const one_user inside{*this};
    if (auto batch = loader_.try_next()) return batch;
    const nb::gil_scoped_release unlocked;
    const auto begin = clock::now();
    for (auto checked = begin;;) {
      // next() does not block for long in these cases: it reads without workers, throws because all
      // slots are held, or returns an empty batch at the end.
      if (loader_.options().workers == 0 || loader_.held() == slots_ || loader_.at_end()) {
        return loader_.next();
      }
      if (auto batch = loader_.try_next()) return batch;
      const auto now = clock::now();
      if (now - checked > std::chrono::milliseconds{20}) {
        const nb::gil_scoped_acquire locked;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        checked = now;
      }
      // The sleep extends the wait by at most a sixteenth of the time waited so far.
      std::this_thread::sleep_for(std::clamp<clock::duration>(
          (now - begin) / 16, std::chrono::microseconds{5}, std::chrono::milliseconds{5}));
    }
  }

 private:
  // Detects concurrent use. Another thread can enter this function, because waiting releases the
  // GIL.
  class one_user {
   public:
    explicit one_user(interruptible& of) : of_(of) {
      if (std::exchange(of.busy_, true)) throw std::logic_error("two threads use one loader");
    }
    one_user(one_user&&) = delete;
    ~one_user() { of_.busy_ = false; }

   private:
    interruptible& of_;
  };

  Loader loader_;
  std::size_t slots_;
  std::uint64_t serial_ = 0;  // serial number of the latest epoch
  bool busy_ = false;         // protected by the GIL
};
