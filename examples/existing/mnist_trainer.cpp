// SPDX-License-Identifier: BSL-1.0
// An existing program that trains a classifier on small images of digits, and validates after each
// epoch. `before` gathers and converts the batches itself, in the loop. `after` pulls the same
// batches from feeds, which read ahead. Both versions train bit-identical weights.
#include <penstock/penstock.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <vector>

namespace ps = penstock;

constexpr std::size_t pixels = 64, classes = 10, batch_rows = 32, epochs = 3;

struct digit_images {
  std::vector<std::uint8_t> bytes, labels;
};

// Stands in for the files: a noisy pattern for each digit.
digit_images made_images(std::size_t count) {
  digit_images made{std::vector<std::uint8_t>(count * pixels), std::vector<std::uint8_t>(count)};
  for (std::size_t i = 0; i != made.bytes.size(); ++i) {
    const std::size_t digit = i / pixels % classes;
    made.labels[i / pixels] = static_cast<std::uint8_t>(digit);
    made.bytes[i] = static_cast<std::uint8_t>(i * i % 101 + (i % classes == digit ? 100 : 0));
  }
  return made;
}

// Stands in for the kernels of the program: a perceptron.
struct network {
  std::vector<float> weights = std::vector<float>(classes * pixels);
  std::size_t correct = 0;  // number of correctly classified validation samples

  int guess(const float* image) const {
    float scores[classes];
    for (std::size_t c = 0; c != classes; ++c) {
      scores[c] = std::inner_product(image, image + pixels, &weights[c * pixels], 0.0F);
    }
    return static_cast<int>(std::max_element(scores, scores + classes) - scores);
  }
  void train_step(const float* images, const int* labels, std::size_t count) {
    for (std::size_t i = 0; i != count; ++i, images += pixels) {
      const int wrong = guess(images);
      for (std::size_t p = 0; p != pixels; ++p) {
        weights[static_cast<std::size_t>(labels[i]) * pixels + p] += images[p];
        weights[static_cast<std::size_t>(wrong) * pixels + p] -= images[p];
      }
    }
  }
  void validate(const float* images, const int* labels, std::size_t count) {
    for (std::size_t i = 0; i != count; ++i) {
      if (guess(images + i * pixels) == labels[i]) ++correct;
    }
  }
};

namespace before {

struct batch_maker {
  const digit_images& from;
  std::vector<float> images = std::vector<float>(batch_rows * pixels);
  std::vector<int> labels = std::vector<int>(batch_rows);

  std::size_t make(const std::vector<std::uint64_t>& order, std::size_t first) {
    const std::size_t count = std::min(batch_rows, order.size() - first);
    for (std::size_t i = 0; i != count; ++i) {
      const std::size_t sample = order[first + i];
      for (std::size_t p = 0; p != pixels; ++p) {
        images[i * pixels + p] = static_cast<float>(from.bytes[sample * pixels + p]) / 255.0F;
      }
      labels[i] = from.labels[sample];
    }
    return count;
  }
};

void train(network& net, const digit_images& training, const digit_images& validation) {
  batch_maker batch{training}, unseen{validation};
  std::vector<std::uint64_t> order(training.labels.size()), all(validation.labels.size());
  std::iota(all.begin(), all.end(), 0U);
  for (std::size_t epoch = 0; epoch != epochs; ++epoch) {
    // Any shuffle would be suitable here. `after` uses the same order, so that the results can be
    // compared.
    ps::shuffled{.seed = 1}.order(order.size(), epoch).fill(0, order);
    for (std::size_t first = 0; first < order.size(); first += batch_rows) {
      const std::size_t count = batch.make(order, first);
      net.train_step(batch.images.data(), batch.labels.data(), count);
    }
    for (std::size_t first = 0; first < all.size(); first += batch_rows) {
      const std::size_t count = unseen.make(all, first);
      net.validate(unseen.images.data(), unseen.labels.data(), count);
    }
  }
}

}  // namespace before

namespace after {

struct digits {
  using record_type = ps::record<ps::field<"image", float, pixels>, ps::field<"label", int>>;
  const digit_images& from;

  std::uint64_t size() const { return from.labels.size(); }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    std::transform(&from.bytes[i * pixels], &from.bytes[i * pixels] + pixels,
                   ps::get<"image">(out).data(), [](float byte) { return byte / 255.0F; });
    ps::get<"label">(out) = from.labels[i];
  }
};

void train(network& net, const digit_images& training, const digit_images& validation) {
  ps::loader samples{digits{training}, ps::shuffled{.seed = 1}, {.batch_size = batch_rows}};
  ps::loader unseen{digits{validation}, ps::sequential{}, {.batch_size = batch_rows}};
  ps::transfer feed{samples};  // on a GPU: {samples, stream}
  ps::transfer validation_feed{unseen};
  for (std::size_t epoch = 0; epoch != epochs;) {
    const auto& batch = feed.next();
    net.train_step(ps::get<"image">(batch).data(), ps::get<"label">(batch).data(), batch.size());
    if (!feed.at_epoch_end()) continue;
    for (auto& one : validation_feed.epoch(epoch++)) {
      net.validate(ps::get<"image">(one).data(), ps::get<"label">(one).data(), one.size());
    }
  }
}

}  // namespace after

int main() {
  const digit_images training = made_images(1000), validation = made_images(250);
  network by_hand, by_penstock;
  before::train(by_hand, training, validation);
  after::train(by_penstock, training, validation);
  const bool is_same =
      by_hand.weights == by_penstock.weights && by_hand.correct == by_penstock.correct;
  std::cout << by_penstock.correct << " of 750 right, "
            << (is_same ? "the same weights" : "other weights") << '\n';
  return is_same ? 0 : 1;
}
