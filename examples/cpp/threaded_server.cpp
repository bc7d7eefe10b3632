// Answers requests of many threads with one model: a server takes what waits, fills the batch and runs a program that
// was compiled before.
//   c++ -std=c++20 threaded_server.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft) -pthread
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <future>
#include <libweft.hpp>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kInput = 16, kClasses = 4, kBatch = 8;
using question = std::array<float, kInput>;
using answer = std::array<float, kClasses>;

class server {
 public:
  explicit server(const weft::context& ctx) : ctx_(ctx) {
    ctx.seed(5);
    const weft::tensor w1 = weft::normal(ctx, {kInput, 32}, {.deviation = 0.25}),
                       w2 = weft::normal(ctx, {32, kClasses}, {.deviation = 0.2});
    // The weights become captures: they are part of the function.
    model_ = weft::function(
        ctx, {{weft::f32, {kBatch, kInput}}},
        [&](weft::tensor x) { return weft::softmax(weft::matmul(weft::relu(weft::matmul(x, w1)), w2)); }, "model");
    model_.compile();
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  std::future<answer> ask(const question& q) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(q, std::promise<answer>());
    more_.notify_one();
    return waiting_.back().second.get_future();
  }

 private:
  void serve(const std::stop_token& stop) {
    while (true) {
      std::vector<std::pair<question, std::promise<answer>>> batch;
      {
        std::unique_lock lock(mutex_);
        if (!more_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
        for (; !waiting_.empty() && batch.size() < kBatch; waiting_.pop_front())
          batch.push_back(std::move(waiting_.front()));
      }
      std::vector<float> x(kBatch * kInput);
      for (std::size_t i = 0; i < batch.size(); ++i)
        std::copy(batch[i].first.begin(), batch[i].first.end(), x.begin() + static_cast<std::ptrdiff_t>(i * kInput));
      const auto found = weft::tensor::try_make(ctx_, x, {kBatch, kInput}).and_then([this](weft::tensor in) {
        return model_.try_run({in});
      });
      const auto values =
          found ? found->front().try_to_vector<float>() : weft::result<std::vector<float>>(found.error());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!values) {  // whoever asked gets the error, and the server goes on
          batch[i].second.set_exception(std::make_exception_ptr(values.error()));
          continue;
        }
        answer a{};
        std::copy_n(values->begin() + static_cast<std::ptrdiff_t>(i * kClasses), kClasses, a.begin());
        batch[i].second.set_value(a);
      }
    }
  }

  weft::context ctx_;
  weft::function model_;
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<std::pair<question, std::promise<answer>>> waiting_;
  std::jthread thread_;
};

}  // namespace

int main() try {
  constexpr int kClients = 4, kRequests = 50;
  const weft::context ctx({.threads = 1});
  server s(ctx);
  std::array<int, kClients> good{};
  {
    std::vector<std::jthread> clients;
    for (std::size_t c = 0; c < kClients; ++c) {
      clients.emplace_back([&s, &good, c] {
        for (int i = 0; i < kRequests; ++i) {
          question q{};
          q[c] = static_cast<float>(i);
          float sum = 0;
          for (const float p : s.ask(q).get()) sum += p;
          good[c] += sum > 0.999f && sum < 1.001f ? 1 : 0;
        }
      });
    }
  }
  std::printf("%d of %d answers are probabilities; %d programs compiled\n", good[0] + good[1] + good[2] + good[3],
              kClients * kRequests, static_cast<int>(ctx.metric("programs_compiled") + ctx.metric("disk_cache_hits")));
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "threaded_server: %s\n", failed.what());
  return 1;
}
