// SPDX-License-Identifier: BSL-1.0
#include "store_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>

#include "raw_bytes.hpp"

namespace mlp {

namespace {

template <class T>
std::vector<std::byte> raw(const T& value) {
  std::vector<std::byte> bytes;
  append_raw(bytes, value);
  return bytes;
}

std::vector<std::byte> with_length(const std::string& value) {
  std::vector<std::byte> bytes = raw(std::uint64_t{value.size()});
  const auto content = std::as_bytes(std::span{value});
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

/// A key for a message: they may be long, and hold anything.
std::string named(const std::string& key) { return "'" + key.substr(0, 80) + "'"; }

}  // namespace

std::vector<store_table::answer> store_table::handle(client from, const store_request& request) {
  if (request.query == store_query::validate) {
    if (request.number != store_magic) throw tcp_error("a store's client has another magic number");
    greeted_.insert(from);
    return {};
  }
  if (!greeted_.contains(from)) throw tcp_error("a store's client has not begun by validating");
  switch (request.query) {
    case store_query::ping:
      return {{from, raw(static_cast<std::uint32_t>(request.number))}};
    case store_query::set:
      put(request.keys.at(0), request.value);
      return end_waits();
    case store_query::get: {
      const auto found = values_.find(request.keys.at(0));
      if (found == values_.end()) {
        throw tcp_error("the store has no " + named(request.keys.at(0)));
      }
      return {{from, with_length(found->second)}};
    }
    case store_query::add: {
      // Kept as digits: PyTorch's clients ask for a sum by `get` too.
      put(request.keys.at(0), sum_of(request.keys.at(0), request.number));
      std::int64_t sum = 0;
      const std::string& kept = values_.at(request.keys.at(0));
      std::from_chars(kept.data(), kept.data() + kept.size(), sum);
      auto answers = end_waits();
      answers.push_back({from, raw(sum)});
      return answers;
    }
    case store_query::wait:
      if (std::ranges::any_of(waits_, [&](const auto& wait) { return wait.first == from; })) {
        throw tcp_error("a store's client asks for a second wait before the first has ended");
      }
      waits_.emplace_back(from, request.keys);
      return end_waits();
    case store_query::validate:
      break;
  }
  throw tcp_error("a store was asked for what it does not know");
}

void store_table::forget(client gone) {
  greeted_.erase(gone);
  std::erase_if(waits_, [&](const auto& wait) { return wait.first == gone; });
}

void store_table::put(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t after = key.size() + value.size();
  if (bytes_ - before + after > most_bytes_) {
    throw tcp_error("the store is full: " + std::to_string(bytes_) + " bytes, " +
                    std::to_string(after) + " for " + named(key) + ", and at most " +
                    std::to_string(most_bytes_));
  }
  values_.insert_or_assign(key, std::move(value));
  bytes_ = bytes_ - before + after;
}

bool store_table::has_all(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

std::vector<store_table::answer> store_table::end_waits() {
  std::vector<answer> answers;
  std::erase_if(waits_, [&](const auto& wait) {
    if (!has_all(wait.second)) return false;
    answers.push_back({wait.first, {std::byte{0}}});
    return true;
  });
  return answers;
}

std::string store_table::sum_of(const std::string& key, std::int64_t amount) const {
  std::int64_t value = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const std::string& text = found->second;
    const char* const end = text.data() + text.size();
    const auto [last, problem] = std::from_chars(text.data(), end, value);
    if (problem != std::errc{} || last != end) {
      throw tcp_error("the store can't add to " + named(key) + ", which holds no number");
    }
  }
  using limits = std::numeric_limits<std::int64_t>;
  if (amount > 0 ? value > (limits::max)() - amount : value < (limits::min)() - amount) {
    throw tcp_error("the store can't add " + std::to_string(amount) + " to " + named(key) +
                    ", which holds " + std::to_string(value));
  }
  return std::to_string(value + amount);
}

}  // namespace mlp
