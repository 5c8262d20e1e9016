// SPDX-License-Identifier: BSL-1.0
// A LiDAR pushes scans of varying length faster than the program processes them, and only the
// newest scan matters. Old scans are dropped in the intake if all its slots are full, and in the
// feed if a newer scan is ready when the device has finished its step. Steps are never queued
// behind each other.
#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/intake.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <span>
#include <thread>

namespace ps = penstock;
using namespace std::chrono_literals;

struct point {
  float x, y, z, intensity;
};
using scan = ps::record<ps::field<"number", std::uint64_t>, ps::field<"points", point, ps::ragged>>;

constexpr std::uint64_t scan_count = 100;
constexpr std::uint64_t max_points = 4096;
std::uint64_t points_of(std::uint64_t number) { return number * 7919 % (max_points + 1); }

// Stands in for the driver: waits for the next scan, writes it to `out`, and returns the number of
// points.
std::uint64_t read_scan(std::uint64_t number, std::span<point> out) {
  std::this_thread::sleep_for(2ms);
  const auto value = static_cast<float>(number);
  for (point& one : out.first(points_of(number))) one = {value, value, value, 1};
  return points_of(number);
}

// Stands in for the step: returns true if all points belong to scan `number`.
bool is_whole(std::uint64_t number, std::span<const point> points) {
  std::this_thread::sleep_for(5ms);  // simulates the rest of the step
  bool is_right = points.size() == points_of(number);
  for (const point& one : points) is_right = is_right && one.x == static_cast<float>(number);
  return is_right;
}

int main() {
  const ps::cpu_device device;
  const ps::intake_options options{.slot_count = 4, .when_full = ps::when_full::drop_oldest};
  ps::intake<scan> scans{device, {{}, {.longest = max_points}}, options};
  std::thread lidar{[&] {
    for (std::uint64_t number = 0; number < scan_count; ++number) {
      auto slot = scans.acquire();
      ps::get<"number">(slot)[0] = number;
      const std::uint64_t length = read_scan(number, ps::get<"points">(slot).flat());
      slot.commit({.lengths = {length}, .tag = number});  // only `length` points are copied
    }
    scans.close();
  }};

  const auto stream = device.make_stream();
  ps::transfer feed{scans, stream, {.newest = true}};
  std::uint64_t computed = 0;
  std::uint64_t next = 0;  // the first scan that the feed has not accounted for
  bool is_in_order = true;
  bool is_right = true;  // work on the stream writes this variable
  for (auto& batch : feed.epoch(0)) {
    ++computed;
    is_in_order = is_in_order && batch.tag() == next + batch.skipped();
    next = batch.tag() + 1;
    stream.launch([&is_right, number = batch.tag(), points = ps::get<"points">(batch)] {
      is_right = is_whole(number, points[0].flat()) && is_right;
    });
  }
  stream.synchronize();
  lidar.join();

  const auto stats = scans.stats();
  const auto age = [&](double share) {
    return std::chrono::duration<double, std::milli>{stats.age.quantile(share)}.count();
  };
  std::cout << scan_count << " scans: " << computed << " computed, " << stats.dropped
            << " dropped\nage when the feed took a scan: p50 " << age(0.5) << " ms, p99 "
            << age(0.99) << " ms\n";
  return is_in_order && is_right && next == scan_count && stats.delivered == computed &&
                 stats.delivered + stats.dropped == scan_count
             ? 0
             : 1;
}
