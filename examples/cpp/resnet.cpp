// A residual network (He et al. 2016, the ResNet-20 of the paper's section 4.2) on Fashion-MNIST, padded to 32 by 32; and
// fine-tuning: with --tune a file's network keeps its layers and learns whether a thing is worn on the feet. The files are
// those of examples/python/resnet.py.
//   c++ -std=c++20 -O2 resnet.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
//   ./a.out --epochs 3 --checkpoint resnet.weft
//   ./a.out --tune resnet.weft --limit 40
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <libweft.hpp>
#include <numbers>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct options {
  std::string data = "/usr/share/datasets/fashion-mnist", checkpoint, tune;
  std::int64_t epochs = 3, limit = 0, blocks = 3, batch = 128;
  double rate = 0.1;
};

// --- model: tensors by the names of the Python program's modules

class resnet {
 public:
  resnet(const weft::context& ctx, std::int64_t blocks, std::int64_t classes) : ctx_(ctx), blocks_(3 * blocks) {
    kernel("conv", 1, 16);
    norm("norm", 16);
    for (std::int64_t i = 0, inputs = 16; i < blocks_; ++i) {
      const std::int64_t outputs = std::int64_t{16} << (i / blocks);
      const std::string name = "blocks." + std::to_string(i) + ".";
      kernel(name + "conv1", inputs, outputs);
      kernel(name + "conv2", outputs, outputs);
      norm(name + "norm1", outputs);
      norm(name + "norm2", outputs);
      inputs = outputs;
    }
    add("head.w", weft::normal(ctx, {64, classes}, {.deviation = 0.125}), true);
    add("head.b", weft::full(ctx, {classes}, 0), true);
    ctx.sync();  // so that the first step is recorded like all others
  }

  // Images [batch, 32, 32, 1] to logits [batch, classes].
  [[nodiscard]] weft::tensor operator()(const weft::tensor& images, bool training) const {
    weft::tensor x = weft::relu(normed("norm", convolved("conv", images, 1), training));
    for (std::int64_t i = 0; i < blocks_; ++i) {
      const std::string name = "blocks." + std::to_string(i) + ".";
      const weft::shape before = at(name + "conv1.w").shape();
      const std::int64_t more = before[3] - before[2], stride = more > 0 ? 2 : 1;
      const weft::tensor half = weft::relu(normed(name + "norm1", convolved(name + "conv1", x, stride), training));
      const weft::tensor y = normed(name + "norm2", convolved(name + "conv2", half, 1), training);
      if (more > 0) {  // The way around has no parameters: every second pixel, and zeros as new channels.
        x = weft::slice(x, {0, 0, 0, 0}, x.shape(), {1, 2, 2, 1});
        x = weft::pad(x, weft::full(ctx_, {}, 0), {0, 0, 0, 0}, {0, 0, 0, more}, {0, 0, 0, 0});
      }
      x = weft::relu(x + y);
    }
    return weft::linear(weft::mean(x, {.dims = {1, 2}}), at("head.w"), at("head.b"));
  }

  [[nodiscard]] weft::tensors trained(bool head_alone = false) const {
    weft::tensors all;
    for (const entry& e : entries_) {
      if (e.trained && (!head_alone || e.name.starts_with("head"))) all.push_back(e.value);
    }
    return all;
  }

  void save(const std::string& path) const {
    weft::tree all;
    for (const entry& e : entries_) {  // names with dots are dicts within dicts
      weft::tree_node where = all;
      std::string_view rest = e.name;
      for (std::size_t dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
        const weft::result<weft::tree_node> known = where.try_find(rest.substr(0, dot));
        where = known ? *known : where.add_dict(rest.substr(0, dot));
        rest.remove_prefix(dot + 1);
      }
      where.add(rest, e.value);
    }
    all.save(ctx_, path);
  }
  // Takes over what a file has, all but the last layer, which stays new: a checkpoint of this program, or PyTorch's state
  // of the same network in safetensors.
  void load(const std::string& path) const {
    const weft::tree all = weft::tree::load(ctx_, path);
    for (const entry& e : entries_) {
      if (e.name.starts_with("head")) continue;
      e.value.assign(path.ends_with(".safetensors") ? of_pytorch(all, e.name) : all[e.name].as<weft::tensor>());
    }
    ctx_.sync();
  }

 private:
  struct entry {
    std::string name;
    weft::tensor value;
    bool trained;
  };
  // PyTorch's kernels are [out, in, 3, 3]; names in safetensors are whole, with their dots.
  [[nodiscard]] static weft::tensor of_pytorch(const weft::tree& all, const std::string& name) {
    const std::size_t dot = name.rfind('.');
    const std::string layer = name.substr(0, dot + 1), part = name.substr(dot + 1);
    const auto theirs = [&](const char* their) {
      std::size_t i = 0;
      while (all.child(i).key() != layer + their) ++i;  // past the last one it is an error
      return all.child(i).as<weft::tensor>();
    };
    if (part == "w") return weft::transpose(theirs("weight"), {2, 3, 1, 0});
    if (part == "scale") return theirs("weight");
    return theirs(part == "offset" ? "bias" : part == "mean" ? "running_mean" : "running_var");
  }
  void add(std::string name, const weft::tensor& value, bool trained) {
    entries_.push_back({std::move(name), trained ? value.requires_grad() : value, trained});
  }
  void kernel(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    const double deviation = std::sqrt(2 / (9 * static_cast<double>(inputs)));  // He et al. 2015
    add(name + ".w", weft::normal(ctx_, {3, 3, inputs, outputs}, {.deviation = deviation}), true);
  }
  void norm(const std::string& name, std::int64_t size) {
    add(name + ".scale", weft::full(ctx_, {size}, 1), true);
    add(name + ".offset", weft::full(ctx_, {size}, 0), true);
    add(name + ".mean", weft::full(ctx_, {size}, 0), false);
    add(name + ".variance", weft::full(ctx_, {size}, 1), false);
  }
  [[nodiscard]] const weft::tensor& at(std::string_view name) const {
    return std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) { return e.name == name; })->value;
  }
  [[nodiscard]] weft::tensor convolved(const std::string& name, const weft::tensor& x, std::int64_t stride) const {
    return weft::conv(x, at(name + ".w"),
                      {.strides = {stride, stride}, .padding = weft::conv_padding::explicit_, .pads = {1, 1, 1, 1}});
  }
  // Batch statistics in training, which the running ones follow; these in evaluation.
  [[nodiscard]] weft::tensor normed(const std::string& name, const weft::tensor& x, bool training) const {
    const weft::tensor &mean = at(name + ".mean"), &variance = at(name + ".variance");
    if (!training) return weft::batch_norm_inference(x, at(name + ".scale"), at(name + ".offset"), mean, variance);
    const weft::shape sizes = x.shape();
    const auto count = static_cast<double>(sizes[0] * sizes[1] * sizes[2]);
    const auto [y, now, spread] = weft::batch_norm(x, at(name + ".scale"), at(name + ".offset"));
    mean.assign(mean * 0.9 + weft::stop_gradient(now) * 0.1);
    variance.assign(variance * 0.9 + weft::stop_gradient(spread) * (0.1 * count / (count - 1)));
    return y;
  }

  const weft::context& ctx_;
  std::int64_t blocks_;
  std::vector<entry> entries_;
};

// --- data: images [count, 28, 28] of bytes and labels [count]; batches are cut and padded by the program

struct dataset {
  weft::tensor images, labels;

  dataset(const weft::context& ctx, const std::string& folder, const std::string& half)
      : images(weft::read_idx(ctx, folder + "/" + half + "-images-idx3-ubyte.gz")),
        labels(weft::read_idx(ctx, folder + "/" + half + "-labels-idx1-ubyte.gz")) {}
};

// [batch, 32, 32, 1] of mean 0 and variance 1, roughly, and labels; or, of the other question, 1 for what is worn on the feet.
std::pair<weft::tensor, weft::tensor> prepared(const weft::context& ctx, const dataset& d,
                                               std::span<const std::int32_t> which, bool feet) {
  const weft::tensor rows(ctx, which);
  weft::tensor x = (weft::convert(weft::take(d.images, rows), weft::f32) / 255 - 0.286) / 0.353;
  x = weft::pad(x, weft::full(ctx, {}, -0.81), {0, 2, 2}, {0, 2, 2}, {0, 0, 0});
  weft::tensor y = weft::convert(weft::take(d.labels, rows), weft::i32);
  if (feet) y = weft::convert((y == 5) | (y == 7) | (y == 9), weft::i32);
  return {weft::reshape(x, {which.size(), 32, 32, 1}), y};
}

double accuracy(const weft::context& ctx, const resnet& model, const dataset& d, std::int64_t batches, bool feet) {
  std::vector<std::int32_t> which(500);
  double right = 0;
  for (std::int64_t n = 0; n < batches; ++n) {
    const weft::scope recorded(ctx);
    std::iota(which.begin(), which.end(), static_cast<std::int32_t>(500 * n));
    const auto [x, y] = prepared(ctx, d, which, feet);
    right += weft::mean(weft::convert(weft::argmax(model(x, false)) == y, weft::f32)).item();
  }
  return right / static_cast<double>(batches);
}

// Steps over batches of the first images, in random order; gives the last loss.
double train(const weft::context& ctx, const resnet& model, const weft::optimizer& optimizer, const weft::tensors& what,
             const dataset& d, std::vector<std::int32_t> order, std::int64_t batch, std::int64_t steps, bool feet,
             const auto& rate) {
  weft::tensor loss;
  for (std::int64_t step = 0, at = 0; step < steps; ++step, at += batch) {
    if (at + batch > static_cast<std::int64_t>(order.size())) at = 0;
    const auto which = std::span(order).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(batch));
    loss = ctx.step([&] {
      const auto [x, y] = prepared(ctx, d, which, feet);
      const weft::tensor entropy = weft::cross_entropy(model(x, true), y);
      optimizer.step(weft::grad(entropy, what), rate(step));
      return entropy;
    });
  }
  return loss.item();
}

std::vector<std::int32_t> shuffled(std::size_t count, unsigned seed) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

void learn(const weft::context& ctx, const options& o, const dataset& training, const dataset& test) {
  const resnet model(ctx, o.blocks, 10);
  const weft::tensors what = model.trained();
  const weft::optimizer sgd = weft::sgd(what, {.momentum = 0.9, .weight_decay = 1e-4, .nesterov = true});
  const auto count = static_cast<std::size_t>(training.labels.size());
  std::int64_t steps = static_cast<std::int64_t>(count) / o.batch;
  if (o.limit > 0) steps = std::min(steps, o.limit);
  for (std::int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    const auto rate = [&](std::int64_t step) {  // half a wave down to nothing
      const double done = static_cast<double>(epoch * steps + step) / static_cast<double>(o.epochs * steps);
      return o.rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
    };
    const double loss = train(ctx, model, sgd, what, training, shuffled(count, static_cast<unsigned>(epoch)), o.batch,
                              steps, false, rate);
    std::printf("epoch %d  loss %.4f  accuracy %.4f\n", static_cast<int>(epoch + 1), loss,
                accuracy(ctx, model, test, o.limit > 0 ? std::min<std::int64_t>(o.limit, 20) : 20, false));
    std::fflush(stdout);
  }
  if (!o.checkpoint.empty()) model.save(o.checkpoint);
}

// First the new last layer learns alone, then all of it, slowly, from 2,000 images.
void tune(const weft::context& ctx, const options& o, const dataset& training, const dataset& test) {
  const resnet model(ctx, o.blocks, 2);
  model.load(o.tune);
  const std::int64_t steps = o.limit > 0 ? o.limit : 40;
  const double before = accuracy(ctx, model, test, 2, true);
  double losses[2];
  for (const bool head : {true, false}) {
    const weft::tensors what = model.trained(head);
    const auto rate = [&](std::int64_t) { return head ? 0.01 : 0.0005; };
    losses[head ? 0 : 1] =
        train(ctx, model, weft::adamw(what), what, training, shuffled(2000, 7), 50, steps / 2, true, rate);
  }
  std::printf("loss %.4f to %.4f\naccuracy %.3f to %.3f\n", losses[0], losses[1], before,
              accuracy(ctx, model, test, 2, true));
}

options parse(std::span<char*> arguments) {
  options o;
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const std::string_view name = arguments[i];
    std::string* const text = name == "--data"         ? &o.data
                              : name == "--checkpoint" ? &o.checkpoint
                              : name == "--tune"       ? &o.tune
                                                       : nullptr;
    std::int64_t* const number = name == "--epochs"   ? &o.epochs
                                 : name == "--limit"  ? &o.limit
                                 : name == "--blocks" ? &o.blocks
                                 : name == "--batch"  ? &o.batch
                                                      : nullptr;
    if ((text == nullptr && number == nullptr && name != "--lr") || i + 1 == arguments.size())
      throw weft::error(weft::code::invalid_argument, "unknown option " + std::string(name));
    if (text != nullptr)
      *text = arguments[i + 1];
    else if (number != nullptr)
      *number = std::atoll(arguments[i + 1]);
    else
      o.rate = std::atof(arguments[i + 1]);
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  const options o = parse({argv, static_cast<std::size_t>(argc)});
  const weft::context ctx;
  ctx.seed(1);
  const dataset training(ctx, o.data, "train"), test(ctx, o.data, "t10k");
  o.tune.empty() ? learn(ctx, o, training, test) : tune(ctx, o, training, test);
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "resnet: %s\n", failed.what());
  return 1;
}
