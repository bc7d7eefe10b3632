// A GPT over bytes, from the King James text or any other: trained, stopped and gone on with the same bits, and sampled
// with a cache of keys and values in one launch. Its checkpoints are those of examples/python/gpt.py.
//   c++ -std=c++20 -O2 gpt.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
//   bible -f gen1:1-rev22:21 > kjv.txt        # Debian's package bible-kjv
//   ./a.out --text kjv.txt --steps 2000 --every 200 --checkpoint gpt.weft
//   ./a.out --text kjv.txt --steps 4000 --resume --sample 100 --prompt "And it came to pass"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <libweft.hpp>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct options {
  std::string text = "kjv.txt", checkpoint = "gpt.weft", prompt = "In the beginning ";
  std::int64_t steps = 2000, horizon = 0, every = 0, batch = 32, context = 128, width = 128, depth = 4, heads = 4,
               warmup = 100, sample = 0;
  double rate = 1e-3, dropout = 0.1, temperature = 0.8;
  bool resume = false;
};

// --- model: parameters by the names of the Python program's modules

struct parameter {
  std::string name;
  weft::tensor value;
};

class gpt {
 public:
  gpt(const weft::context& ctx, const options& o) : ctx_(ctx), o_(o) {
    const double inner = 1 / std::sqrt(static_cast<double>(o.width)),
                 outer = inner / std::sqrt(2 * static_cast<double>(o.depth));
    for (std::int64_t i = 0; i < o.depth; ++i) {  // in the order of names, which is the Python program's
      const std::string block = "blocks." + std::to_string(i) + ".";
      add(block + "down.b", {o.width}, 0);
      add(block + "down.w", {4 * o.width, o.width}, outer / 2);  // what is added 2 depth times starts small
      add(block + "inner.w", {o.width, 3 * o.width}, inner);
      norm(block + "norm1");
      norm(block + "norm2");
      add(block + "outer.w", {o.width, o.width}, outer);
      add(block + "up.b", {4 * o.width}, 0);
      add(block + "up.w", {o.width, 4 * o.width}, inner);
    }
    add("bytes.table", {256, o.width}, 0.02);
    norm("norm");
    add("places.table", {o.context, o.width}, 0.02);
    ctx.sync();  // so that the first step is recorded like all others
    for (const parameter& each : parameters) each.value.requires_grad();
  }

  // [batch, time] to logits [batch, time, 256]; the table of the bytes is the last layer, too.
  [[nodiscard]] weft::tensor operator()(const weft::tensor& ids, bool training) const {
    const std::int64_t time = ids.shape()[1];
    weft::tensor x = drop(
        weft::embedding(at("bytes.table"), ids) + weft::slice(at("places.table"), {0, 0}, {time, o_.width}, {1, 1}),
        training);
    for (std::int64_t i = 0; i < o_.depth; ++i) {
      const std::string block = "blocks." + std::to_string(i) + ".";
      const weft::tensors parts = heads(block, x);
      x = perceptron(block, attend(block, x, parts, parts[1], parts[2], {}, {.causal = true}, training), training);
    }
    return logits(x);
  }

  // Logits [256] behind one byte at place i. The keys and values of all blocks, [depth, heads, context, width / heads]
  // each, get those of this place; what is seen is what is there up to i.
  [[nodiscard]] weft::tensor one(const weft::context& body, const weft::tensor& byte, const weft::tensor& i,
                                 weft::tensor& keys, weft::tensor& values) const {
    const auto places = static_cast<double>(o_.context);
    const weft::tensor seen = weft::arange(body, 0, places, {.dtype = weft::i32}) <= i, zero = i * 0;
    weft::tensor x = weft::embedding(at("bytes.table"), weft::reshape(byte, {1, 1})) +
                     weft::embedding(at("places.table"), weft::reshape(i, {1, 1}));
    for (std::int64_t n = 0; n < o_.depth; ++n) {
      const std::string block = "blocks." + std::to_string(n) + ".";
      const weft::tensors parts = heads(block, x);
      const weft::tensor layer = zero + n;
      keys = weft::dynamic_update_slice(keys, parts[1], {layer, zero, i, zero});
      values = weft::dynamic_update_slice(values, parts[2], {layer, zero, i, zero});
      const weft::tensor k = weft::expand_dims(weft::at(keys, n), {0}), v = weft::expand_dims(weft::at(values, n), {0});
      x = perceptron(block, attend(block, x, parts, k, v, seen, {}, false), false);
    }
    return weft::reshape(logits(x), {256});
  }

  [[nodiscard]] weft::tensor empty_cache() const {
    return weft::full(ctx_, {o_.depth, o_.heads, o_.context, o_.width / o_.heads}, 0);
  }

  std::vector<parameter> parameters;

 private:
  void add(std::string name, const weft::shape& sizes, double deviation) {
    weft::tensor value =
        deviation > 0 ? weft::normal(ctx_, sizes, {.deviation = deviation}) : weft::full(ctx_, sizes, 0);
    parameters.push_back({std::move(name), std::move(value)});
  }
  void norm(const std::string& name) {
    parameters.push_back({name + ".offset", weft::full(ctx_, {o_.width}, 0)});
    parameters.push_back({name + ".scale", weft::full(ctx_, {o_.width}, 1)});
  }
  [[nodiscard]] const weft::tensor& at(std::string_view name) const {
    return std::find_if(parameters.begin(), parameters.end(), [&](const parameter& p) { return p.name == name; })
        ->value;
  }
  [[nodiscard]] weft::tensor normed(const std::string& name, const weft::tensor& x) const {
    return weft::layer_norm(x, at(name + ".scale"), at(name + ".offset"));
  }
  [[nodiscard]] weft::tensor drop(const weft::tensor& x, bool training) const {
    return training && o_.dropout > 0 ? weft::dropout(x, {.rate = o_.dropout}) : x;
  }
  [[nodiscard]] weft::tensor logits(const weft::tensor& x) const {
    return weft::matmul(normed("norm", x), weft::transpose(at("bytes.table"), {1, 0}));
  }
  // q, k and v, [batch, heads, time, width / heads] each.
  [[nodiscard]] weft::tensors heads(const std::string& block, const weft::tensor& x) const {
    const weft::shape sizes = x.shape();
    weft::tensors parts = weft::chunk(weft::matmul(normed(block + "norm1", x), at(block + "inner.w")), 3, -1);
    for (weft::tensor& part : parts)
      part = weft::transpose(weft::reshape(part, {sizes[0], sizes[1], o_.heads, o_.width / o_.heads}), {0, 2, 1, 3});
    return parts;
  }
  [[nodiscard]] weft::tensor attend(const std::string& block, const weft::tensor& x, const weft::tensors& parts,
                                    const weft::tensor& k, const weft::tensor& v, const weft::tensor& mask,
                                    const weft::scaled_dot_product_attention_options& how, bool training) const {
    const weft::tensor y = weft::scaled_dot_product_attention(parts[0], k, v, mask, how);
    const weft::tensor joined = weft::reshape(weft::transpose(y, {0, 2, 1, 3}), x.shape());
    return x + drop(weft::matmul(joined, at(block + "outer.w")), training);
  }
  [[nodiscard]] weft::tensor perceptron(const std::string& block, const weft::tensor& x, bool training) const {
    const weft::tensor up =
        weft::gelu(weft::linear(normed(block + "norm2", x), at(block + "up.w"), at(block + "up.b")));
    return x + drop(weft::linear(up, at(block + "down.w"), at(block + "down.b")), training);
  }

  const weft::context& ctx_;
  const options& o_;
};

// --- training

// AdamW that shrinks matrices and leaves biases, norms and tables alone; the parameters in its order.
struct training {
  std::vector<weft::tensor> parameters;
  weft::optimizer adamw;

  explicit training(const gpt& model) {
    weft::adam_group groups[2] = {{{}, {.beta2 = 0.99, .weight_decay = 0.1}}, {{}, {.beta2 = 0.99, .weight_decay = 0.0}}};
    for (const parameter& p : model.parameters)
      groups[p.value.rank() == 2 && p.name.find("table") == std::string::npos ? 0 : 1].parameters.push_back(p.value);
    for (const weft::adam_group& group : groups)
      parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
    adamw = weft::adamw(groups);
  }
};

void save(const weft::context& ctx, const options& o, const gpt& model, const weft::optimizer& adamw,
          std::int64_t step) {
  weft::tree all;
  const weft::tree_node root = all.add_dict("model");
  for (const parameter& p : model.parameters) {  // names with dots are dicts within dicts
    weft::tree_node where = root;
    std::string_view rest = p.name;
    for (std::size_t dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
      const weft::result<weft::tree_node> known = where.try_find(rest.substr(0, dot));
      where = known ? *known : where.add_dict(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    where.add(rest, p.value);
  }
  const weft::tree_node optimizer = all.add_dict("optimizer");
  optimizer.add("count", step);
  optimizer.add("state", adamw.state());
  const weft::random_state random = ctx.random();
  all.add_dict("random")
      .add("key", static_cast<std::int64_t>(random.key))
      .add("low", static_cast<std::int64_t>(random.counter_low))
      .add("high", static_cast<std::int64_t>(random.counter_high));
  all.save(ctx, o.checkpoint, {.step = step});
}

// Goes on where a file ends; gives how many steps it had.
std::int64_t load(const weft::context& ctx, const options& o, const gpt& model, const weft::optimizer& adamw) {
  const weft::tree all = weft::tree::load(ctx, o.checkpoint);
  for (const parameter& p : model.parameters) p.value.assign(all["model." + p.name].as<weft::tensor>());
  adamw.load(all["optimizer.state"]);
  const auto number = [&](const char* path) { return static_cast<std::uint64_t>(all[path].as<std::int64_t>()); };
  ctx.set_random({number("random.key"), number("random.low"), number("random.high")});
  ctx.sync();
  return all["optimizer.count"].as<std::int64_t>();
}

void train(const weft::context& ctx, const options& o, const gpt& model, const weft::tensor& text) {
  const training trained(model);
  const weft::schedule rate{
      .kind = weft::schedule_kind::cosine, .rate = o.rate, .warmup = o.warmup, .steps = o.horizon, .end = o.rate / 10};
  const std::int64_t first = o.resume ? load(ctx, o, model, trained.adamw) : 0, length = text.size();
  weft::tensor loss;
  for (std::int64_t step = first; step < o.steps; ++step) {
    loss = ctx.step([&] {
      // Pieces of the text and the bytes that follow each, drawn when the program runs.
      const weft::tensor drawn = weft::uniform(ctx, {o.batch, 1}, {.dtype = weft::f64});
      const weft::tensor starts =
          weft::convert(weft::floor(drawn * static_cast<double>(length - o.context)), weft::i32);
      const auto places = static_cast<double>(o.context + 1);
      const weft::tensor pieces =
          weft::convert(weft::take(text, starts + weft::arange(ctx, 0, places, {.dtype = weft::i32})), weft::i32);
      const weft::tensor x = weft::slice(pieces, {0, 0}, {o.batch, o.context}, {1, 1});
      const weft::tensor y = weft::slice(pieces, {0, 1}, {o.batch, o.context + 1}, {1, 1});
      const weft::tensor entropy = weft::cross_entropy(weft::reshape(model(x, true), {o.batch * o.context, 256}),
                                                       weft::reshape(y, {o.batch * o.context}));
      const auto [gradients, norm] = weft::clip_by_global_norm(weft::grad(entropy, trained.parameters), 1.0);
      trained.adamw.step(gradients, rate(step));
      return entropy;
    });
    if ((step + 1) % 100 == 0)
      std::fprintf(stderr, "step %lld: loss %.4f\n", static_cast<long long>(step + 1), loss.item());
    if (o.every > 0 && (step + 1) % o.every == 0) save(ctx, o, model, trained.adamw, step + 1);
  }
  if (first < o.steps)
    std::printf("step %lld  loss %.4f (%a)\n", static_cast<long long>(o.steps), loss.item(), loss.item());
}

// The prompt and what follows it, by one loop of one program; temperature 0 takes the likeliest.
void sample(const weft::context& ctx, const options& o, const gpt& model) {
  const std::int64_t given = static_cast<std::int64_t>(o.prompt.size()), total = given + o.sample;
  if (given < 1 || total > o.context)
    throw weft::error(weft::code::invalid_argument, "the prompt and what follows it do not fit");
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < o.prompt.size(); ++i) prompt[i] = static_cast<unsigned char>(o.prompt[i]);
  const weft::tensor known(ctx, prompt);
  ctx.sync();
  const std::int64_t before = ctx.metric("programs_queued");
  const auto place = [&](const weft::context& body, weft::tensor byte, weft::tensor keys, weft::tensor values,
                         weft::tensor i) {
    const weft::tensor logits = model.one(body, byte, i, keys, values);
    const weft::tensor drawn = o.temperature > 0 ? weft::categorical(logits / o.temperature) : weft::argmax(logits);
    byte = weft::where(i + 1 < given, weft::take(known, weft::minimum(i + 1, total - 1)), drawn);
    return std::array{byte, keys, values, byte, logits};
  };
  const weft::tensor cache = model.empty_cache();
  const weft::tensor places = weft::arange(ctx, 0, static_cast<double>(total - 1), {.dtype = weft::i32});
  const weft::scan_results<3> made = weft::scan(place, {weft::at(known, 0), cache, cache}, {places});
  const weft::tensor &bytes = made.stacked[0], &logits = made.stacked[1];
  ctx.eval({bytes, logits}).wait();
  const std::int64_t launches = ctx.metric("programs_queued") - before;
  std::string text = o.prompt.substr(0, 1);
  for (const std::int32_t byte : bytes.to_vector<std::int32_t>()) text.push_back(static_cast<char>(byte));
  std::printf("%s\n", text.c_str());
  const weft::tensor ids = weft::concatenate({weft::reshape(weft::at(known, 0), {1}), bytes}, {.dimension = 0});
  const weft::tensor full = weft::at(model(weft::reshape(ids, {1, total}), false), 0);
  const double apart = weft::max(weft::abs(weft::slice(full, {0, 0}, {total - 1, 256}, {1, 1}) - logits)).item();
  std::printf("%lld launch, beside the full forward: %.1e\n", static_cast<long long>(launches), apart);
}

options parse(std::span<char*> arguments) {
  options o;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--resume") {
      o.resume = true;
      continue;
    }
    std::string* const text = name == "--text"         ? &o.text
                              : name == "--checkpoint" ? &o.checkpoint
                              : name == "--prompt"     ? &o.prompt
                                                       : nullptr;
    std::int64_t* const number = name == "--steps"     ? &o.steps
                                 : name == "--horizon" ? &o.horizon
                                 : name == "--every"   ? &o.every
                                 : name == "--batch"   ? &o.batch
                                 : name == "--context" ? &o.context
                                 : name == "--width"   ? &o.width
                                 : name == "--depth"   ? &o.depth
                                 : name == "--warmup"  ? &o.warmup
                                 : name == "--sample"  ? &o.sample
                                                       : nullptr;
    double* const real = name == "--lr"            ? &o.rate
                         : name == "--dropout"     ? &o.dropout
                         : name == "--temperature" ? &o.temperature
                                                   : nullptr;
    if ((text == nullptr && number == nullptr && real == nullptr) || i + 1 == arguments.size())
      throw weft::error(weft::code::invalid_argument,
                        "unknown option " + std::string(name) + "; the first lines of gpt.cpp show them");
    ++i;
    if (text != nullptr) *text = arguments[i];
    if (number != nullptr) *number = std::atoll(arguments[i]);
    if (real != nullptr) *real = std::atof(arguments[i]);
  }
  if (o.horizon == 0) o.horizon = o.steps;
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  const options o = parse({argv, static_cast<std::size_t>(argc)});
  std::ifstream file(o.text, std::ios::binary);
  const std::vector<std::uint8_t> text{std::istreambuf_iterator<char>(file), {}};
  if (static_cast<std::int64_t>(text.size()) <= o.context + 1)
    throw weft::error(weft::code::not_found, "no text of more than a piece's length is in " + o.text);
  const weft::context ctx;
  ctx.seed(1);
  const gpt model(ctx, o);
  train(ctx, o, model, weft::tensor(ctx, text));
  if (o.sample > 0) sample(ctx, o, model);
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "gpt: %s\n", failed.what());
  return 1;
}
