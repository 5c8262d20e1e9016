// SPDX-License-Identifier: BSL-1.0
// Trains a network on MNIST three times and compares the times: with a serial feed, with an
// overlapped feed, and with data that stays on the device. main.cu is the same program for a GPU.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <penstock_ext/report/trace_files.hpp>

#include "digits.hpp"
#include "loops.hpp"

namespace example {

constexpr const char* usage =
    R"(usage: penstock_mlp [OPTION]...
  --data DIR      MNIST's four files, plain or .gz; else $MNIST_DIR, else random digits
  --epochs N      how often each loop goes over the data (5)
  --batch N       digits a step (64)
  --workers N     threads that read (the cores less one, at most 8)
  --samples N     the first N digits only, to train on and to test on
  --device NAME   cpu or cuda (cuda where there is a GPU and the program was built by nvcc)
  --augment       turns and shifts each digit anew: reading then costs as much as a step on the CPU
  --trace FILE    writes the serial and the overlapped loop as JSON, for ui.perfetto.dev
)";

struct options : loop_options {
  std::string data;
  std::size_t samples = std::numeric_limits<std::size_t>::max();
  std::string device;
  bool augment = false;
  std::string trace;
};

struct bad_option : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns no value if the user requested help. Throws `bad_option`.
inline std::optional<options> parsed(int count, const char* const* arguments) {
  options chosen;
  chosen.workers = std::clamp(std::thread::hardware_concurrency(), 2U, 9U) - 1;
  int i = 1;
  const auto text = [&]() -> std::string {
    if (i + 1 == count) throw bad_option(std::string{arguments[i]} + " needs a value");
    return arguments[++i];
  };
  const auto number = [&](std::size_t min) {
    const std::string name = arguments[i];
    const std::string value = text();
    std::size_t found = 0;
    const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), found);
    if (wrong == std::errc{} && *end == 0 && found >= min) return found;
    throw bad_option(name + " " + value + ": expected a number, at least " + std::to_string(min));
  };
  const std::map<std::string, std::function<void()>> known{
      {"--data", [&] { chosen.data = text(); }},
      {"--epochs", [&] { chosen.epochs = number(1); }},
      {"--batch", [&] { chosen.batch = number(1); }},
      {"--workers", [&] { chosen.workers = number(0); }},
      {"--samples", [&] { chosen.samples = number(1); }},
      {"--device", [&] { chosen.device = text(); }},
      {"--augment", [&] { chosen.augment = true; }},
      {"--trace", [&] { chosen.trace = text(); }},
  };
  for (; i < count; ++i) {
    if (std::string_view{arguments[i]} == "--help") return std::nullopt;
    const auto option = known.find(arguments[i]);
    if (option == known.end()) {
      throw bad_option(std::string{arguments[i]} + ": no such option; --help lists them");
    }
    option->second();
  }
  if (!chosen.device.empty() && chosen.device != "cpu" && chosen.device != "cuda") {
    throw bad_option("--device " + chosen.device + ": expected cpu or cuda");
  }
  return chosen;
}

/// The test digits on the device.
template <class Backend>
class test_digits {
 public:
  test_digits(const Backend& backend, const digit_set& digits, std::size_t batch)
      : batch_(batch),
        stream_(backend.stream()),
        images_(backend.device(), digits.images.size()),
        labels_(backend.device(), digits.labels.size()),
        right_(backend.device(), (digits.labels.size() + batch - 1) / batch) {
    images_.upload(digits.images, stream_);
    labels_.upload(digits.labels, stream_);
  }

  /// Runs a step on `count` digits and discards its result. A GPU loads kernels on first use, which
  /// may be impossible during a capture.
  void warm_up(const network<Backend>& net, std::size_t count) const {
    net.step(images_.data(), labels_.data(), std::min(count, labels_.size()), nullptr);
  }
  /// Returns the fraction of correctly classified digits. Waits for the stream.
  [[nodiscard]] double accuracy(network<Backend>& net) const {
    for (std::size_t b = 0; b < right_.size(); ++b) {
      const std::size_t first = b * batch_;
      net.count_right(images_.data() + first * layer1::inputs, labels_.data() + first,
                      std::min(batch_, labels_.size() - first), right_.data() + b);
    }
    std::vector<float> found(right_.size());
    right_.download(found, stream_);
    double right = 0;
    for (const float batch : found) right += static_cast<double>(batch);
    return right / static_cast<double>(labels_.size());
  }

 private:
  template <class T>
  using array = device_array<T, typename Backend::device_type>;

  std::size_t batch_;
  typename Backend::device_type::stream_ref stream_;
  array<std::uint8_t> images_;
  array<std::uint8_t> labels_;
  array<float> right_;
};

/// The results of a loop.
struct run {
  const char* name;
  double seconds;
  std::vector<float> losses;  // losses of all steps
  std::vector<float> parameters;
  double accuracy;
};

/// Throws unless both runs trained the same network, bit for bit.
inline void require_same(const run& first, const run& other) {
  const std::string names = std::string{other.name} + " and " + first.name + " differ: ";
  const auto [at, its] = std::mismatch(first.losses.begin(), first.losses.end(),
                                       other.losses.begin(), other.losses.end());
  if (at != first.losses.end()) {
    throw std::runtime_error(names + "the loss of step " +
                             std::to_string(at - first.losses.begin()) + " of " +
                             std::to_string(first.losses.size()));
  }
  if (other.parameters != first.parameters) throw std::runtime_error(names + "the parameters");
}

inline void print_table(const std::vector<run>& runs, std::size_t epochs) {
  std::printf("\n%-12s %10s %11s %11s %10s\n", "loop", "s / epoch", "vs serial", "last loss",
              "accuracy");
  for (const run& one : runs) {
    double loss = 0;  // mean loss of the last epoch
    const std::size_t steps = one.losses.size() / epochs;
    for (std::size_t i = one.losses.size() - steps; i < one.losses.size(); ++i) {
      loss += static_cast<double>(one.losses[i]) / static_cast<double>(steps);
    }
    std::printf("%-12s %10.3f %10.2fx %11.5f %8.2f %%\n", one.name,
                one.seconds / static_cast<double>(epochs), runs.front().seconds / one.seconds, loss,
                100 * one.accuracy);
  }
  std::printf("All loops had the same losses and parameters, to the last bit.\n\n");
}

/// Prints a rough lower bound for the time of a loop with these workers, computed from the stages
/// of the other runs. The step time is the resident loop's mean, because that loop does not wait
/// for each step. The copy is not included, because the serial loop copies from ordinary memory and
/// its time is mostly waiting.
inline void print_bound(const stage_clock& stages, const run& overlapped, const run& resident,
                        std::size_t workers, std::size_t cores, bool step_takes_core) {
  const auto of_a_batch = [](const run& one) {
    return 1e6 * one.seconds / static_cast<double>(one.losses.size());
  };
  const double read = stages.median(ps::trace_stage::read);
  const double copy = stages.median(ps::trace_stage::copy);
  const double step = std::min(of_a_batch(resident), stages.median(ps::trace_stage::step));
  struct limit {
    double time;
    const char* words;
  };
  std::vector<limit> limits{{step, "the step"},
                            {read / static_cast<double>(std::max<std::size_t>(workers, 1)),
                             "reading with these workers"}};
  if (step_takes_core) {
    limits.push_back({(read + copy + step) / static_cast<double>(cores), "the cores"});
  }
  const limit min = *std::max_element(limits.begin(), limits.end(),
                                      [](auto& a, auto& b) { return a.time < b.time; });
  std::printf(
      "A batch alone: read %.0f us, copy %.0f us, step %.0f us. A loop takes about\n"
      "%.0f us a batch at least, for %s; the overlapped one takes %.0f us.\n",
      read, copy, step, min.time, min.words, of_a_batch(overlapped));
}

/// Writes the trace. The serial loop appears as an additional thread, next to the threads of the
/// overlapped loop.
inline void write_trace(const ps::trace_recorder& recorder, const stage_clock& stages,
                        const std::string& file) {
  ps::trace_snapshot both = recorder.snapshot();
  both.tracks.insert(both.tracks.begin(),
                     {.name = "serial loop", .flow = 0, .lost = 0, .events = stages.events()});
  ps::write_chrome_trace(both, file);
}

template <class Backend, class Data>
void experiment(const Backend& backend, const Data& data, const digit_set& test,
                const options& chosen) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::printf("%zu + %zu digits%s, %zu epochs in batches of %zu\n%s, %zu cores, %zu worker%s\n",
              static_cast<std::size_t>(data.size()), test.labels.size(),
              chosen.augment ? " with augmentation" : "", chosen.epochs, chosen.batch,
              backend.name().c_str(), cores, chosen.workers, chosen.workers == 1 ? "" : "s");
  training<Backend> trained{backend, chosen, data.size()};
  const test_digits<Backend> tested{backend, test, chosen.batch};
  tested.warm_up(trained.net(), chosen.batch);
  if (const std::size_t last = data.size() % chosen.batch; last != 0) {
    tested.warm_up(trained.net(), last);
  }

  std::vector<run> runs;
  const auto add = [&](const char* name, double seconds) {
    runs.push_back({name, seconds, trained.losses(), trained.net().parameters(),
                    tested.accuracy(trained.net())});
    require_same(runs.front(), runs.back());
  };
  stage_clock stages;
  std::string diagnosis;
  std::optional<ps::trace_recorder> recorder;
  if (!chosen.trace.empty()) recorder.emplace();
  add("serial", train_serially(data, trained, chosen, stages));
  add("overlapped",
      train_overlapped(data, trained, chosen, recorder ? &*recorder : nullptr, diagnosis));
  add("resident", train_resident(data, trained, chosen));

  print_table(runs, chosen.epochs);
  print_bound(stages, runs[1], runs[2], chosen.workers, cores, Backend::shares_cores);
  std::printf("The overlapped loop is %s\n", diagnosis.c_str());
  if (recorder) write_trace(*recorder, stages, chosen.trace);
}

template <class Backend>
void run_on(const Backend& backend, const options& chosen) {
  const digit_data digits = find_digits(chosen.data, chosen.samples);
  std::printf("%s: ", digits.name.c_str());
  if (chosen.augment) {
    experiment(backend, digits.train.samples() | ps::map<ps::digit_record>(augment{}), digits.test,
               chosen);
  } else {
    experiment(backend, digits.train.samples(), digits.test, chosen);
  }
}

}  // namespace example

int main(int argc, char** argv) {
  using namespace example;
  try {
    const auto chosen = parsed(argc, argv);
    if (!chosen) {
      std::cout << usage;
      return 0;
    }
#if defined(EXAMPLE_HAS_CUDA)
    int gpus = 0;
    const bool has_gpu = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
    if (chosen->device == "cuda" || (chosen->device.empty() && has_gpu)) {
      run_on(cuda_backend{}, *chosen);
      return 0;
    }
#else
    if (chosen->device == "cuda") {
      throw bad_option("--device cuda: this program was built without nvcc");
    }
#endif
    run_on(cpu_backend{}, *chosen);
    return 0;
  } catch (const example::bad_option& error) {
    std::cerr << "penstock_mlp: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "penstock_mlp: " << error.what() << '\n';
    return 1;
  }
}
