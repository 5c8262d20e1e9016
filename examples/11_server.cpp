// SPDX-License-Identifier: BSL-1.0
// An inference server without its network. Clients send single requests and wait for the responses.
// The model computes many responses at once, and a thread returns them while the next step runs.
// After Ctrl-C, the server accepts no new requests but answers the pending requests.
#include <penstock/penstock.hpp>
#include <penstock_ext/results/results.hpp>
#include <penstock_ext/serve/batcher.hpp>
#include <penstock_ext/signals/stop_on_signal.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <iostream>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ps = penstock;
using namespace std::chrono_literals;

using features = ps::record<ps::field<"x", float, 8>>;
using scores = ps::record<ps::field<"score", float>>;

// Stands in for a model: returns the sum of the features of each request.
float model(ps::const_sample<features> in) {
  float sum = 0;
  for (const float x : ps::get<"x">(in).flat()) sum += x;
  return sum;
}

int main() {
  std::vector<std::promise<float>> answers(1024);  // one promise per tag
  const auto reject = [&](std::span<const std::uint64_t> tags, ps::unserved) {
    for (const auto tag : tags)
      answers[tag].set_exception(std::make_exception_ptr(std::runtime_error{"not served"}));
  };

  ps::stop_on_signal ctrl_c{SIGINT, SIGTERM};
  ps::batcher<features> requests{
      ps::cpu_device{},
      {.max_batch_size = 16, .fill = 2ms, .on_unserved = reject, .stop = ctrl_c.token()}};

  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (std::uint64_t client = 0; client < 16; ++client) {
    clients.emplace_back([&, client] {
      try {
        for (std::uint64_t tag = client; tag < answers.size(); tag += 16) {
          requests.submit(tag, [tag](ps::sample<features> out) {
            for (float& x : ps::get<"x">(out).flat()) x = static_cast<float>(tag);
          });
          const float answer = answers[tag].get_future().get();
          answered += answer == 8 * static_cast<float>(tag) ? 1 : 0;
        }
      } catch (const std::exception& problem) {
        // Also catches ps::batcher_closed, which is thrown while the server stops.
        std::cerr << problem.what() << '\n';
      }
    });
  }
  std::thread last_one_out{[&] {
    for (auto& client : clients) client.join();
    requests.close();
  }};

  ps::transfer feed{requests};
  const auto answer = [&](const auto& done) {
    for (std::size_t i = 0; i < done.size(); ++i)
      answers[done.tags()[i]].set_value(ps::get<"score">(done)(i));
  };
  ps::results<scores> out{ps::cpu_device{}, 16, answer};
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
    for (std::size_t i = 0; i < batch.size(); ++i)
      ps::get<"score">(slot)(i) = model(batch.view()[i]);
  }
  out.close();

  last_one_out.join();
  std::cout << answered << " requests answered\n";
  return answered == 1024 ? 0 : 1;
}
