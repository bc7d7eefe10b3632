// Trains the convolutional network of examples/c/train_fashion_mnist.c on Fashion-MNIST: conv 32 - conv 64 - dense 128
// - dense 10, batch 64, AdamW. Same seeds, same numbers, and checkpoints that either program reads.
//   c++ -std=c++20 -O2 train_fashion_mnist.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
//   ./a.out --epochs 5 --checkpoint fashion_mnist.weft
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <libweft.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 64, kEvalBatch = 500, kSide = 28;

struct options {
  std::string data = "/usr/share/datasets/fashion-mnist", checkpoint = "fashion_mnist.weft",
              cache = "fashion_mnist.cache";
  std::int64_t epochs = 5, limit = 0, seed = 1;
  bool resume = false;
};

// A weight and a bias for each layer, in this order; a bias has no fan-in.
struct layer {
  const char *name, *part;
  weft::shape sizes;
  double fan_in;
};
const std::array<layer, 8> kLayers = {{{"conv1", "weight", {3, 3, 1, 32}, 9},
                                       {"conv1", "bias", {32}, 0},
                                       {"conv2", "weight", {3, 3, 32, 64}, 288},
                                       {"conv2", "bias", {64}, 0},
                                       {"dense1", "weight", {9216, 128}, 9216},
                                       {"dense1", "bias", {128}, 0},
                                       {"dense2", "weight", {128, 10}, 128},
                                       {"dense2", "bias", {10}, 0}}};
using parameters = std::array<weft::tensor, 8>;

// --- data

struct dataset {
  std::vector<std::uint8_t> images, labels;
  std::int64_t count = 0;
};

dataset read(const weft::context& ctx, const std::string& folder, const std::string& half) {
  const weft::tensor images = weft::read_idx(ctx, folder + "/" + half + "-images-idx3-ubyte.gz");
  const weft::tensor labels = weft::read_idx(ctx, folder + "/" + half + "-labels-idx1-ubyte.gz");
  if (images.rank() != 3 || images.shape()[0] != labels.size())
    throw weft::error(weft::code::invalid_argument, folder + ": images and labels do not match");
  return {images.to_vector<std::uint8_t>(), labels.to_vector<std::uint8_t>(), labels.size()};
}

// The order of an epoch: a function of seed and epoch alone, by the sampler that the C program's loader reads ahead with.
std::vector<std::int64_t> shuffled(std::int64_t n, std::int64_t seed, std::int64_t epoch) {
  weft_sampler_options options = WEFT_SAMPLER_OPTIONS_INIT;
  options.batch = n;
  options.order = WEFT_ORDER_RANDOM;
  options.seed = static_cast<std::uint64_t>(seed);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  weft_sampler* sampler = nullptr;
  weft_error* failed = weft_sampler_create(n, &options, &sampler);
  if (failed == nullptr) failed = weft_sampler_batch(sampler, epoch, 0, order.data(), order.size(), nullptr, nullptr);
  weft_sampler_release(sampler);
  if (failed != nullptr) throw weft::error(failed);
  return order;
}

struct batch {
  weft::tensor x, y;  // images [n, 28, 28, 1] as f32 in [0, 1], labels [n] as i32

  batch(const weft::context& ctx, const dataset& d, std::span<const std::int64_t> which) {
    std::vector<std::uint8_t> images;
    std::vector<std::int32_t> labels;
    for (const std::int64_t i : which) {
      const auto first = d.images.begin() + i * kSide * kSide;
      images.insert(images.end(), first, first + kSide * kSide);
      labels.push_back(d.labels[static_cast<std::size_t>(i)]);
    }
    x = weft::convert(weft::tensor(ctx, images, {which.size(), kSide, kSide, 1}), weft::f32) * weft::arg(1.0 / 255);
    y = weft::tensor(ctx, labels);
  }
};

// --- model

weft::tensor forward(const parameters& p, const weft::tensor& x) {
  weft::tensor h = weft::relu(weft::conv(x, p[0]) + p[1]);
  h = weft::relu(weft::conv(h, p[2]) + p[3]);
  h = weft::flatten(weft::max_pool(h, {2, 2}), {.start_axis = 1});
  h = weft::relu(weft::matmul(h, p[4]) + p[5]);
  return weft::matmul(h, p[6]) + p[7];
}

// He initialisation (He et al. 2015): normal with variance 2 / fan-in, from the context's random state.
parameters made(const weft::context& ctx) {
  parameters p;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const layer& l = kLayers[i];
    p[i] = l.fan_in > 0 ? weft::normal(ctx, l.sizes, {.deviation = std::sqrt(2.0 / l.fan_in)})
                        : weft::full(ctx, l.sizes, 0);
  }
  ctx.sync();  // so that the first step is recorded like all others
  for (const weft::tensor& each : p) each.requires_grad();
  return p;
}

// --- checkpoint

void save(const weft::context& ctx, const options& o, const parameters& p, const weft::optimizer& adamw,
          std::int64_t epoch) {
  weft::tree all;
  const weft::tree_node model = all.add_dict("model");
  for (std::size_t i = 0; i < p.size(); i += 2)
    model.add_dict(kLayers[i].name).add(kLayers[i].part, p[i]).add(kLayers[i + 1].part, p[i + 1]);
  const weft::random_state random = ctx.random();
  all.add("optimizer", adamw.state());
  all.add_dict("random")
      .add("key", static_cast<std::int64_t>(random.key))
      .add("low", static_cast<std::int64_t>(random.counter_low))
      .add("high", static_cast<std::int64_t>(random.counter_high));
  all.add("epoch", epoch).add("step", 0).add("seed", o.seed).add("bf16", false).add("optimizer_name", "adamw");
  all.save(ctx, o.checkpoint, {.step = epoch});
}

struct resumed {
  parameters p;
  weft::optimizer adamw;
  std::int64_t epoch = 0;
};
resumed load(const weft::context& ctx, options& o) {
  const weft::tree all = weft::tree::load(ctx, o.checkpoint);
  resumed r;
  for (std::size_t i = 0; i < r.p.size(); ++i) {
    r.p[i] = all[std::string("model.") + kLayers[i].name + "." + kLayers[i].part].as<weft::tensor>();
    if (!(r.p[i].type() == weft::tensor_type{weft::f32, kLayers[i].sizes}))
      throw weft::error(weft::code::invalid_argument, o.checkpoint + " is of another network");
    r.p[i].requires_grad();
  }
  if (all["optimizer_name"].as<std::string>() != "adamw" || all["bf16"].as<bool>() ||
      all["step"].as<std::int64_t>() != 0)
    throw weft::error(weft::code::invalid_argument,
                      o.checkpoint + " was trained with other options, or within an epoch");
  r.adamw = weft::adamw(r.p);
  r.adamw.load(all["optimizer"]);
  const auto number = [&](const char* path) { return static_cast<std::uint64_t>(all[path].as<std::int64_t>()); };
  ctx.set_random({number("random.key"), number("random.low"), number("random.high")});
  o.seed = all["seed"].as<std::int64_t>();
  r.epoch = all["epoch"].as<std::int64_t>();
  return r;
}

// --- training

double accuracy(const weft::context& ctx, const parameters& p, const dataset& test, std::int64_t limit) {
  double right = 0;
  std::int64_t at = 0;
  for (; at + kEvalBatch <= test.count && (limit == 0 || at < limit * kEvalBatch); at += kEvalBatch) {
    const weft::scope recorded(ctx);
    std::vector<std::int64_t> which(kEvalBatch);
    for (std::size_t i = 0; i < which.size(); ++i) which[i] = at + static_cast<std::int64_t>(i);
    const batch b(ctx, test, which);
    right += weft::sum(weft::convert(weft::argmax(forward(p, b.x)) == b.y, weft::f32)).item();
  }
  return right / static_cast<double>(at);
}

void train(options o) {
  const weft::context ctx({.cache_dir = o.cache});
  const dataset training = read(ctx, o.data, "train"), test = read(ctx, o.data, "t10k");
  resumed r;
  if (o.resume) {
    r = load(ctx, o);
  } else {
    ctx.seed(static_cast<std::uint64_t>(o.seed));
    r.p = made(ctx);
    r.adamw = weft::adamw(r.p);
  }
  std::int64_t steps = training.count / kBatch;
  if (o.limit > 0 && o.limit < steps) steps = o.limit;
  for (std::int64_t epoch = r.epoch; epoch < o.epochs; ++epoch) {
    const std::vector<std::int64_t> order = shuffled(training.count, o.seed, epoch);
    weft::tensor loss;
    for (std::int64_t step = 0; step < steps; ++step) {
      loss = ctx.step([&] {
        const batch b(ctx, training, std::span(order).subspan(static_cast<std::size_t>(step * kBatch), kBatch));
        const weft::tensor entropy = weft::cross_entropy(forward(r.p, b.x), b.y);
        r.adamw.step(weft::grad(entropy, weft::tensor_refs(r.p)), 0.001);
        return entropy;
      });
      if (step % 100 == 99)
        std::fprintf(stderr, "epoch %d, step %d: loss %.4f\n", static_cast<int>(epoch + 1), static_cast<int>(step + 1),
                     loss.item());
    }
    std::printf("{\"epoch\": %d, \"loss\": %.6f, \"accuracy\": %.4f}\n", static_cast<int>(epoch + 1), loss.item(),
                accuracy(ctx, r.p, test, o.limit));
    std::fflush(stdout);
    if (o.checkpoint != "none") save(ctx, o, r.p, r.adamw, epoch + 1);
  }
}

options parse(std::span<char*> arguments) {
  options o;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--resume") {
      o.resume = true;
      continue;
    }
    std::string* const text = name == "--data"         ? &o.data
                              : name == "--checkpoint" ? &o.checkpoint
                              : name == "--cache"      ? &o.cache
                                                       : nullptr;
    std::int64_t* const number = name == "--epochs"  ? &o.epochs
                                 : name == "--limit" ? &o.limit
                                 : name == "--seed"  ? &o.seed
                                                     : nullptr;
    if ((text == nullptr && number == nullptr) || i + 1 == arguments.size()) {
      std::fprintf(
          stderr,
          "usage: train_fashion_mnist [--epochs N] [--limit STEPS] [--seed S] [--data DIR] [--cache DIR] [--checkpoint FILE|none] [--resume]\n");
      std::exit(2);
    }
    ++i;
    if (text != nullptr) *text = arguments[i];
    if (number != nullptr) *number = std::atoll(arguments[i]);
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  train(parse({argv, static_cast<std::size_t>(argc)}));
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "train_fashion_mnist: %s\n", failed.what());
  return 1;
}
