// All that libweft.hpp gives, piece by piece; failures are exceptions here. The words of errors are part of what is
// checked.
#include <chrono>
#include <complex>
#include <filesystem>
#include <iostream>
#include <libweft/format.hpp>
#include <limits>
#include <list>
#include <ranges>
#include <sstream>
#include <stop_token>
#include <thread>

#include "check.hpp"
#include "weft_fluent.h"  // its macros and these names live in one file

#if __has_include(<mdspan>)
#include <mdspan>
#endif

namespace {

template <class F>
std::string refused(weft::code code, F f) {
  try {
    f();
  } catch (const weft::error& failed) {
    if (failed.code() == code) return failed.what();
    return "code " + std::to_string(static_cast<int>(failed.code())) + ": " + failed.what();
  }
  return "nothing was thrown";
}

void in_and_out(const weft::context& ctx) {
  CHECK(holds<float>(weft::tensor(ctx, {1.f, 2.f, 3.f}), {1, 2, 3}));
  CHECK(weft::tensor(ctx, {1, 2, 3, 4, 5, 6}, {2, 3}).type() == weft::tensor_type{weft::i32, {2, 3}});
  CHECK(holds<double>(weft::tensor(ctx, std::vector<double>{1, 2}), {1, 2}));
  CHECK(holds<int>(weft::tensor(ctx, std::list<int>{7, 8}), {7, 8}));
  CHECK(holds<int>(weft::tensor(ctx, std::views::iota(0, 40) | std::views::filter([](int i) { return i % 13 == 0; })),
                   {0, 13, 26, 39}));
  CHECK(holds<bool>(weft::tensor(ctx, std::vector<bool>{true, false}), {true, false}));
  CHECK(holds<std::complex<float>>(weft::tensor(ctx, std::vector<std::complex<float>>{{1, 2}}), {{1, 2}}));
  CHECK(weft::tensor(ctx, std::vector<std::complex<double>>(2)).dtype() == weft::c128);
  CHECK(weft::tensor(ctx, std::vector<float>{}).shape() == weft::shape{0});
  CHECK(weft::tensor(ctx, std::vector<long long>{1}).dtype() == weft::i64 &&
        weft::tensor(ctx, std::vector<unsigned char>{1}).dtype() == weft::u8);
  CHECK(weft::tensor(ctx, 2.5).dtype() == weft::f64 && weft::tensor(ctx, 2.5, weft::bf16).item() == 2.5);
  CHECK(weft::tensor(ctx, std::numeric_limits<std::uint64_t>::max()).item<std::uint64_t>() ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(weft::tensor(ctx, std::numeric_limits<std::int64_t>::min()).item<std::int64_t>() ==
        std::numeric_limits<std::int64_t>::min());
  std::array<float, 3> room{};
  weft::tensor(ctx, {4.f, 5.f, 6.f}).to(room);
  CHECK(room == std::array<float, 3>{4, 5, 6});
  weft::tensor(ctx, {7.f, 8.f, 9.f}).to(std::span(room));
  CHECK(room[2] == 9);
  CHECK(refused(weft::code::invalid_argument, [&] { weft::tensor(ctx, {1.0}).to(room); }) ==
        "the tensor holds f64 and the memory is of f32; weft::convert makes a tensor of another type");
  CHECK(refused(weft::code::invalid_argument, [&] { weft::tensor(ctx, {1.f}).to(room); }).find("size") !=
        std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [&] {
          weft::tensor(ctx, {1.f, 2.f}, {3});
        }).find("weft_tensor_from_host") == 0);
  CHECK(refused(weft::code::out_of_range, [&] { (void)weft::tensor(ctx, 300).item<std::uint8_t>(); }) ==
        "the tensor's element is 300, which the integer type cannot hold");
  CHECK(refused(weft::code::out_of_range, [&] { (void)weft::tensor(ctx, -1).item<unsigned>(); }).find("-1") !=
        std::string::npos);
  std::vector<weft::bfloat16> halves{weft::bfloat16(1.5f), weft::bfloat16(-2.0f)};
  CHECK(weft::sum(weft::tensor(ctx, halves)).item() == -0.5);
}

// Every half and bfloat16 goes to float and back; every float between two goes to the nearer one, as the library's own
// conversion has it.
void halves(const weft::context& ctx) {
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    weft::float16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const float wide = static_cast<float>(half);
    if (wide == wide) CHECK(weft::float16(wide).bits == half.bits);
    floats.push_back(wide);
    floats.push_back(std::bit_cast<float>(i * 65537u));
    floats.push_back(std::bit_cast<float>((i << 16) | 0x8000u));
    floats.push_back(std::bit_cast<float>((i << 13) + 0x33000000u + 0x1000u));
  }
  const weft::tensor x(ctx, floats);
  const auto library16 = weft::convert(x, weft::f16).to_vector<weft::float16>();
  const auto libraryb = weft::convert(x, weft::bf16).to_vector<weft::bfloat16>();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (floats[i] != floats[i]) continue;  // which NaN is nobody's promise
    wrong += weft::float16(floats[i]) == library16[i] ? 0 : 1;
    wrong += weft::bfloat16(floats[i]) == libraryb[i] ? 0 : 1;
  }
  CHECK(wrong == 0);
}

void mdspans([[maybe_unused]] const weft::context& ctx) {
#if defined(__cpp_lib_mdspan)
  std::array<float, 6> data{1, 2, 3, 4, 5, 6}, out{};
  const std::mdspan<float, std::extents<std::size_t, 2, 3>> view(data.data());
  const weft::tensor x(ctx, view);
  CHECK(x.shape() == weft::shape{2, 3});
  (x * 2).to(std::mdspan(out.data(), 2, 3));
  CHECK(out == std::array<float, 6>{2, 4, 6, 8, 10, 12});
  CHECK(refused(weft::code::invalid_argument, [&] { x.to(std::mdspan(out.data(), 3, 2)); }) ==
        "the mdspan has not the tensor's shape, dense and row-major");
  const std::mdspan<float, std::dextents<int, 2>, std::layout_left> columns(data.data(), 2, 3);
  CHECK(refused(weft::code::invalid_argument, [&] { weft::tensor(ctx, columns); }) ==
        "the mdspan's elements do not lie dense and row-major");
  std::cout << "mdspan\n";
#endif
}

void formulas(const weft::context& ctx) {
  const weft::tensor x(ctx, {1.f, -2.f, 3.f}), y(ctx, {2.f, 2.f, 2.f});
  CHECK(holds<float>(x + y, {3, 0, 5}) && holds<float>(x - y, {-1, -4, 1}) && holds<float>(x * y, {2, -4, 6}) &&
        holds<float>(x / y, {0.5, -1, 1.5}));
  CHECK(holds<float>(x + 1, {2, -1, 4}) && holds<float>(1 - x, {0, 3, -2}) && holds<float>(2 * x, {2, -4, 6}) &&
        holds<float>(6 / y, {3, 3, 3}));
  CHECK(holds<float>(-x, {-1, 2, -3}) && holds<bool>(x < 0, {false, true, false}) &&
        holds<bool>(2 >= y, {true, true, true}));
  CHECK(holds<bool>(x == y, {false, false, false}) && holds<bool>(~(x != 3), {false, false, true}) &&
        holds<float>(x * weft::arg(0.5), {0.5, -1, 1.5}));
  CHECK(holds<bool>((x > 0) & (x < 2), {true, false, false}) && holds<bool>((x > 2) | (x < 0), {false, true, true}));
  const weft::tensor n(ctx, {7, 8});
  CHECK(holds<int>(n % 4, {3, 0}) && holds<int>(n & 1, {1, 0}) && holds<int>(n ^ 1, {6, 9}));
  CHECK(holds<std::int64_t>(weft::tensor(ctx, {std::int64_t{0}}) + std::int64_t{9007199254740993},
                            {9007199254740993}));  // no double holds it
  weft::tensor z = x;
  z += 1;
  z *= y;
  z -= y;
  z /= 2;
  CHECK(holds<float>(z, {1, -2, 3}) && holds<float>(x, {1, -2, 3}));
  CHECK(holds<float>(weft::at(x, -1), {3}) && holds<float>(weft::at(x, 1), {-2}));
  const weft::tensor m(ctx, std::views::iota(0, 6), {2, 3});
  CHECK(holds<int>(weft::sum(m, {.dims = {-1}, .keepdims = true}), {3, 12}) && weft::sum(m).item<int>() == 15);
  CHECK(weft::sum(m, {.dims = weft::ints(std::vector<int>())}).shape() ==
        weft::shape{2, 3});  // an empty list is not an absent one
  const weft::sum_options kept{.dims = {0}};
  CHECK(holds<int>(weft::sum(m, kept), {3, 5, 7}));
  CHECK(holds<int>(weft::concatenate({m, m}, {.dimension = 1}), {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  const auto [values, indices] = weft::top_k(x, 2);
  CHECK(holds<float>(values, {3, 1}) && holds<int>(indices, {2, 0}));
  CHECK(weft::linear(weft::tensor(ctx, {1.f, 2.f}, {1, 2}), weft::tensor(ctx, {1.f, 1.f}, {2, 1}), {.dtype = weft::f64})
            .item() == 3);
  CHECK(holds<int>(weft::split(weft::flatten(m), {1, 5})[1], {1, 2, 3, 4, 5}) && weft::chunk(m, 2, -1).size() == 2 &&
        weft::unstack(m)[1].size() == 3);
  CHECK(weft::chunk(m, 1000000000).size() == 2);
  CHECK(holds<int>(weft::nonzero(m), {0, 1, 0, 2, 1, 0, 1, 1, 1, 2}) &&
        holds<int>(weft::masked_select(m, m > 3), {4, 5}));
  CHECK(holds<int>(weft::unique(weft::tensor(ctx, {3, 1, 3})).counts, {1, 2}) &&
        holds<int>(weft::boolean_mask(m, weft::tensor(ctx, std::vector<bool>{false, true})), {3, 4, 5}));
  CHECK(holds<float>(weft::maximum(x, 0), {1, 0, 3}) &&
        weft::mse(x, y, {.reduction = weft::mse_reduction::sum}).item() == 18);
}

void errors(const weft::context& ctx) {
  const weft::tensor x(ctx, {1.f, 2.f, 3.f}), y(ctx, {1.f, 2.f});
  try {
    (void)weft::matmul(x, y);
    CHECK(false);
  } catch (const std::exception& failed) {
    CHECK(failed.what() == std::string("matmul(f32[3], f32[2]): x has 3 columns and y 2 rows; they must be equal"));
  }
  const auto failed = weft::try_matmul(x, y);
  CHECK(!failed && failed.error().operation() == "matmul" && !failed.error().position().empty() &&
        failed.error().code() == weft::code::invalid_argument);
  CHECK(weft::try_matmul(x, x).and_then([](weft::tensor z) { return z.try_item<double>(); }).value_or(0.0) == 14);
  CHECK(weft::try_matmul(x, y).and_then([](weft::tensor z) { return z.try_item<double>(); }).value_or(-1.0) == -1);
  ctx.mark();
  const weft::error marked = weft::try_matmul(x, y).error();
  CHECK(marked.position().find("binding.cpp:") != std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [] { weft::context none({.threads = -1}); }).find("option threads") !=
        std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [] {
          weft::context none({.more = {{"no_such_option", "1"}}});
        }).find("no_such_option") != std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [&] { (void)(x + weft::tensor()); }) ==
        "add: y is NULL; a weft_tensor is needed");
  CHECK(!weft::try_add(x, weft::tensor()) && !weft::try_add(weft::tensor(), weft::tensor()) &&
        !weft::tensor().try_item<double>());
  const weft::context other({.platform = "cpu", .cache_mode = "off"});
  CHECK(!weft::try_add(x, weft::tensor(other, {1.f})));
  CHECK(std::string(weft::try_call([&] { return weft::matmul(x, y) * 2; }).error().operation()) == "matmul");
  CHECK(weft::try_call([&] { return weft::grad([](weft::tensor a) { return weft::sum(a); })(x); })->size() == 3 &&
        weft::try_call([&] { ctx.sync(); }));
  weft::tensor moved = x + 1, taken = std::move(moved);
  CHECK(holds<float>(taken, {2, 3, 4}) && !moved);  // NOLINT: what a moved-from tensor is, is part of the interface
  weft::error mine(weft::code::aborted, "of my own"), copy = mine;
  std::ostringstream text;
  text << copy << " " << weft::f32 << " " << x;
  CHECK(text.str() == "of my own f32 [1. 2. 3.]");
}

void scopes(const weft::context& ctx) {
  weft::tensor kept, lost;
  {
    weft::scope s(ctx);
    const weft::tensor x(ctx, {1.f, 2.f});
    kept = (x * 2).keep();
    lost = x * 3;
    s.end();
  }
  ctx.sync();
  CHECK(holds<float>(kept, {2, 4}));
  const std::string late = refused(weft::code::failed_precondition, [&] { (void)lost.to_vector<float>(); });
  CHECK(late.find("keep") != std::string::npos);  // the remedy
  const auto [a, b] = ctx.step([&] { return std::pair(kept + 1, kept + 2); });
  CHECK(holds<float>(a, {3, 5}) && holds<float>(b, {4, 6}));

  // Intermediates that live on do not change the program: 30 steps, some of which hold everything.
  const weft::context own({.platform = "cpu", .threads = 1, .cache_mode = "off"});
  weft::tensor w(own, {1.f, 1.f, 1.f, 1.f}, {2, 2});
  own.sync();
  std::vector<weft::tensor> held;
  std::uint32_t random = 12345;
  std::int64_t after_two = 0;
  for (int i = 0; i < 30; ++i) {
    w = own.step([&] {
      const weft::tensor h = weft::tanh(weft::matmul(w, w)), g = h * 0.5;
      random = random * 1664525u + 1013904223u;
      if ((random >> 16) % 3 == 0) held.push_back(h);
      if ((random >> 20) % 3 == 0) held.push_back(g);
      return w - g;
    });
    if (i == 1) after_two = own.metric("programs_compiled");
  }
  CHECK(!held.empty() && own.metric("programs_compiled") == after_two);
}

void functions(const weft::context& ctx, const std::string& folder) {
  const weft::tensor x(ctx, {1.f, 2.f, 3.f});
  const weft::function f(
      ctx, {{weft::f32, {3}}, {weft::f32}}, [](weft::tensor a, weft::tensor b) { return weft::sum(a * a * b); },
      "square");
  CHECK(f(x, weft::tensor(ctx, 2.f)).one().item() == 28 && f.name() == "square" && f.inputs().size() == 2 &&
        f.results()[0].shape.empty());
  CHECK(holds<float>(f.grad({.wrt = {0}})(x, weft::tensor(ctx, 2.f)), {4, 8, 12}));
  const weft::tensors both = f.grad({.wrt = {1}, .values = true})(x, weft::tensor(ctx, 2.f));
  CHECK(both.size() == 2 && both[1].item() == 14);
  CHECK(refused(weft::code::failed_precondition, [&] { (void)both.one(); }) ==
        "there are 2 results where one is asked for");
  CHECK(holds<float>(f.vmap(2, {.in_axes = {0, weft::not_mapped}})(
                         weft::tensor(ctx, {1.f, 2.f, 3.f, 0.f, 1.f, 0.f}, {2, 3}), weft::tensor(ctx, 1.f)),
                     {14, 1}));
  f.save(folder + "/square.weft");
  const weft::function again = weft::function::load(ctx, folder + "/square.weft");
  CHECK(again.key() == f.key() && again(x, weft::tensor(ctx, 1.f)).one().item() == 14);
  CHECK(weft::function::from_stablehlo(ctx, f.text(weft::text_format::stablehlo))(x, weft::tensor(ctx, 1.f))
            .one()
            .item() == 14);
  CHECK(refused(weft::code::not_found, [&] { (void)weft::function::load(ctx, folder + "/none"); }).find("none") !=
        std::string::npos);
  f.compile();
  CHECK(f.run({x, weft::tensor(ctx, 3.f)})[0].item() == 42 && f.stats().kernels > 0);
  const weft::function captures(ctx, {{weft::f32, {3}}}, [&](weft::tensor a) { return std::vector{a + x, a}; });
  CHECK(captures.captures().size() == 1 && captures(x).size() == 2);
  CHECK(weft::function(ctx, {{weft::f32}},
                       [&](const weft::context& body, weft::tensor a) { return a + weft::full(body, {2}, 1.0); })(
            weft::tensor(ctx, 1.f))
            .one()
            .size() == 2);

  const auto cube = [](weft::tensor a) { return weft::sum(a * a * a); };
  CHECK(holds<float>(weft::grad(cube)(x), {3, 12, 27}));
  CHECK(weft::grad(weft::grad([](weft::tensor a) { return a * a * a; }))(weft::tensor(ctx, 2.0)).item() == 12);
  const auto [value, gradients] =
      weft::value_and_grad<0, 1>([](weft::tensor a, weft::tensor b) { return weft::sum(a * b); })(x, x);
  CHECK(value.item() == 14 && holds<float>(gradients[1], {1, 2, 3}));
  CHECK(holds<float>(weft::vmap([](weft::tensor a, weft::tensor b) { return a * b; },
                                {.in_axes = {0, weft::not_mapped}})(x, weft::tensor(ctx, 2.f)),
                     {2, 4, 6}));
  CHECK(
      weft::vmap(weft::grad(cube), {.in_axes = {1}, .out_axes = {1}})(weft::tensor(ctx, std::vector<float>(6), {2, 3}))
          .shape() == weft::shape{2, 3});
  const auto [y, pull] = weft::vjp([](weft::tensor a) { return std::pair(a * 2, a * a); }, x);
  CHECK(holds<float>(y.second, {1, 4, 9}) && holds<float>(pull(x, x), {4, 12, 24}));
  const auto [along, tangents] = weft::jvp(cube, {x}, {x});
  CHECK(along.item() == 36 && tangents.one().item() == 108);
  const weft::tensor leaf = weft::tensor(ctx, {1.f, 2.f}).requires_grad();
  const auto [d] = weft::grad(weft::sum(leaf * leaf), {leaf});
  CHECK(holds<float>(d, {2, 4}));

  // An exception of a lambda comes out, and the scope around it is the open one again.
  weft::scope around(ctx);
  try {
    (void)weft::grad([](weft::tensor a) -> weft::tensor {
      if (a.rank() == 1) throw std::runtime_error("mine");
      return a;
    })(x);
    CHECK(false);
  } catch (const std::runtime_error& mine) {
    CHECK(std::string(mine.what()) == "mine");
  }
  CHECK(refused(weft::code::failed_precondition, [&] {
          (void)weft::function(ctx, {{weft::f32}}, [](weft::tensor a) { return a * a.item(); });
        }).find("body") != std::string::npos);
  const weft::tensor after = x + 1;
  CHECK(holds<float>(after, {2, 3, 4}));
}

void control(const weft::context& ctx) {
  const weft::tensor x(ctx, {1.f, 2.f, 3.f}), zero(ctx, 0.f);
  const auto running = [](weft::tensor c, weft::tensor s) { return std::array{c + s, c * s}; };
  const auto scanned = weft::scan(running, {zero}, {x});
  CHECK(scanned.carried[0].item() == 6 && holds<float>(scanned.stacked, {0, 2, 9}));
  CHECK(weft::scan([](weft::tensor c) { return c + 1; }, {zero}, {.length = 5}).carried[0].item() == 5);
  CHECK(holds<float>(weft::scan(running, {zero}, {x}, {.reverse = true}).stacked[0], {5, 6, 0}));
  CHECK(holds<float>(
      weft::grad([&](weft::tensor a) {
        return weft::scan([](weft::tensor c, weft::tensor s) { return c + s * s; }, {zero}, {a}).carried[0];
      })(x),
      {2, 4, 6}));
  const auto [last, count] = weft::while_loop([](weft::tensor a, weft::tensor) { return a < 100; },
                                              [](weft::tensor a, weft::tensor n) { return std::pair(a * 2, n + 1); },
                                              {weft::tensor(ctx, 3.f), weft::tensor(ctx, 0)});
  CHECK(last.item() == 192 && count.item<int>() == 6);
  const auto [sum] = weft::for_loop(4, [](weft::tensor i, weft::tensor a) { return a + weft::convert(i, weft::f32); },
                                    {zero}, {.max_count = 8});
  CHECK(sum.item() == 6);
  const auto branch = [&](float at) {
    const weft::tensor a(ctx, at);
    return weft::cond(a > 0, [](weft::tensor b) { return b + 1; }, [](weft::tensor b) { return b - 1; }, a).item();
  };
  CHECK(branch(2) == 3 && branch(-2) == -3);
  const std::array branches{weft::function(ctx, {{weft::f32}}, [](weft::tensor a) { return a * 10; }),
                            weft::function(ctx, {{weft::f32}}, [](weft::tensor a) { return a * 20; })};
  CHECK(weft::switch_case(weft::tensor(ctx, 1), branches, {weft::tensor(ctx, 1.f)}).one().item() == 20);
}

// Lambdas within lambdas: the inner ones use what the outer ones have, and what lies around both.
void nested(const weft::context& ctx) {
  const weft::tensor xs(ctx, {1.f, 2.f, 3.f}), zero(ctx, 0.f), w(ctx, 2.f), yes = zero < 1;
  const auto scanned = [&](weft::tensor a) {
    return weft::scan([&](weft::tensor c, weft::tensor x) { return c + a * x; }, {zero}, {xs}).carried[0];  // all outer
  };
  CHECK(weft::grad(scanned)(w).item() == 6);
  CHECK(weft::grad([&](weft::tensor a) {
          return weft::cond(yes, [&](weft::tensor b) { return a * b; }, [&](weft::tensor b) { return b; }, w);
        })(w)
            .item() == 2);
  CHECK(weft::grad([&](weft::tensor a) {
          return weft::for_loop(3, [&](weft::tensor, weft::tensor c) { return c + a; }, {zero}, {.max_count = 3})[0];
        })(w)
            .item() == 3);
  CHECK(
      weft::grad([&](weft::tensor a) { return weft::grad([&](weft::tensor b) { return a * b * b; })(w); })(w).item() ==
      4);
  CHECK(holds<float>(
      weft::vmap([&](weft::tensor x) { return weft::sum(weft::vmap([&](weft::tensor y) { return x * y; })(xs)); })(xs),
      {6, 12, 18}));
  const weft::tensor mixed = weft::grad(
      [&](weft::tensor a) { return weft::sum(weft::concatenate({xs, xs * a}) - weft::arg(1) * (w * a)); })(w);
  CHECK(mixed.item() == 6 - 6 * 2);
}

void custom(const weft::context& ctx) {
  const double factor = 3;
  const auto triple = weft::custom(
      ctx, "triple", [factor](double v) { return factor * v; }, {.many_threads = true},
      [](weft::tensor, weft::tensor, weft::tensor g) { return g * 3; });
  const weft::tensor x(ctx, {1.0, 2.0});
  CHECK(holds<double>(triple(x), {3, 6}) &&
        holds<double>(weft::grad([&](weft::tensor v) { return weft::sum(triple(v).one()); })(x), {3, 3}));
  CHECK(holds<double>(weft::vmap([&](weft::tensor v) { return triple(v).one(); })(x), {3, 6}));
  const auto parts = weft::custom(ctx, "parts", [](float v, int& whole) {
    whole = static_cast<int>(v);
    return v - static_cast<float>(whole);
  });
  const weft::tensors both = parts(weft::tensor(ctx, {1.5f, 2.25f}));
  CHECK(both.size() == 2);
  bool found = false;
  for (const weft::tensor& one : both) found = found || (one.dtype() == weft::i32 && holds<int>(one, {1, 2}));
  CHECK(found);
  const auto backwards = weft::custom(ctx, "backwards", [](std::span<const float> a, std::span<float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) b[i] = a[a.size() - 1 - i];
  });
  CHECK(holds<float>(backwards(weft::tensor(ctx, {1.f, 2.f, 3.f})), {3, 2, 1}));
  const auto limit = weft::custom(ctx, "limit", [](double v) {
    if (v > 1.5) throw std::runtime_error("too large");
    return v;
  });
  CHECK(refused(weft::code::unknown, [&] {
          (void)limit(x).one().to_vector<double>();
        }).find("custom operation 'limit', element 1: too large") != std::string::npos);
  CHECK(refused(weft::code::already_exists, [&] {
          (void)weft::custom(ctx, "limit", [](double v) { return v; });
        }).find("limit") != std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [&] { (void)triple(weft::tensor(ctx, {1.f})); }).find("triple") !=
        std::string::npos);
  CHECK(weft::custom_symbol(ctx, "lgamma", "libm.so.6", "lgamma_r", "double(double, int*)")(x).size() == 2);
}

void state(const weft::context& ctx, const std::string& folder) {
  const weft::tensor w = weft::tensor(ctx, {1.f, 2.f}).requires_grad();
  const weft::optimizer adam = weft::adam({w}, {.beta1 = 0.8}), sgd = weft::sgd({w}, {.momentum = 0.9}),
                        adamw = weft::adamw({w}, {.weight_decay = 0.0});
  sgd.step(weft::grad(weft::sum(w * w), {w}), 0.25);
  ctx.sync();
  CHECK(holds<float>(w, {0.5, 1}));
  adam.step({weft::tensor()}, 0.1);  // no gradient: left alone
  const weft::tensor copy = w, clone = w.clone();
  w.assign(w * 2);
  CHECK(holds<float>(copy, {1, 2}) && holds<float>(clone, {0.5, 1}));
  weft::tree tree;
  tree.add("w", w)
      .add("epoch", 3)
      .add("rate", 0.5)
      .add("name", "a run")
      .add("done", true)
      .add("optimizer", sgd.state());
  tree.add_list("layers").add("", w).add("", 7);
  const std::array bytes{std::byte{0}, std::byte{255}};
  tree.add("bytes", std::span<const std::byte>(bytes));
  const std::string path = folder + "/run.weft";
  tree.save(ctx, path, {.step = 3, .metadata = {{"who", "me"}}});
  tree.save_behind(ctx, path, {.durable = false}).wait();
  const weft::tree back = weft::tree::load(ctx, path);
  CHECK(holds<float>(back["w"].as<weft::tensor>(), {1, 2}) && back["epoch"].as<std::int64_t>() == 3 &&
        back["rate"].as<double>() == 0.5);
  CHECK(back["name"].as<std::string>() == "a run" && back["done"].as<bool>() &&
        back["bytes"].as<std::string>().size() == 2);
  CHECK(back["layers.1"].as<std::int64_t>() == 7 && back["layers"].size() == 2 &&
        back["layers"].kind() == weft::node_kind::list && back.child(0).key() == "w");
  sgd.load(back["optimizer"]);
  CHECK(refused(weft::code::not_found, [&] { (void)back["no.such"]; }).find("no") != std::string::npos);
  CHECK(refused(weft::code::already_exists, [&] { tree.add("w", 1); }).find("w") != std::string::npos);
  CHECK(refused(weft::code::invalid_argument, [&] { (void)back["w"].as<double>(); }) != "nothing was thrown");
  CHECK(refused(weft::code::not_found, [&] { (void)weft::tree::load(ctx, folder + "/none"); }).find("none") !=
        std::string::npos);
}

// Groups that decay and that do not, at rates of their own; gradients of length 5 cut to 1.
void groups(const weft::context& ctx) {
  const weft::tensor a(ctx, {1.}), b(ctx, {1.}), none(ctx, {0.});
  const weft::adam_group both[] = {{{a}, {.weight_decay = 0.5}}, {{b}, {.weight_decay = 0.0}}};
  const double rates[] = {0.1, 0.2};
  const weft::optimizer adamw = weft::adamw(both);
  adamw.step({none, none}, rates);
  CHECK(holds<double>(a, {1 - 0.1 * 0.5}) && holds<double>(b, {1}));
  adamw.step({none, none}, 0.2);  // one rate for both
  CHECK(std::abs(a.item<double>() - 0.95 * 0.9) < 1e-15);
  CHECK(refused(weft::code::invalid_argument, [&] { adamw.step({none, none}, std::span(rates, 1)); }).find("1 learning rates for 2 groups") !=
        std::string::npos);
  const weft::schedule cosine{.kind = weft::schedule_kind::cosine, .rate = 1, .warmup = 2, .steps = 6};
  CHECK(cosine(0) == 0.5 && cosine(1) == 1 && cosine(2) == 1 && std::abs(cosine(4) - 0.5) < 1e-15 && cosine(9) == 0);
  CHECK(refused(weft::code::invalid_argument, [&] { (void)cosine(-1); }).find("step is -1") != std::string::npos);
  const weft::sgd_group one[] = {{{b}, {.momentum = 0.9}}};
  weft::sgd(one).step({a}, 0.0);
  CHECK(refused(weft::code::invalid_argument, [&] { (void)weft::adam(std::span<const weft::adam_group>()); }) != "nothing was thrown");
  const auto [clipped, norm] = weft::clip_by_global_norm({weft::tensor(ctx, {3.}), weft::tensor(), weft::tensor(ctx, {4.})}, 1.0);
  CHECK(norm.item<double>() == 5 && std::abs(clipped[2].item<double>() - 0.8) < 1e-6 && clipped[1].get() == nullptr);
}

void around(const weft::context& ctx) {
  CHECK(ctx.devices()[0].name() == "cpu:0" && ctx.device_named("cpu").memory().in_use > 0 &&
        !ctx.devices()[0].kind().empty());
  CHECK(ctx.option("platform") == "cpu" && ctx.metrics(weft::metrics_format::json)[0] == '{' &&
        ctx.metric("programs_compiled") > 0);
  ctx.seed(7);
  const weft::random_state before = ctx.random();
  const auto first = weft::normal(ctx, {4}, {.deviation = 2.0}).to_vector<float>();
  ctx.set_random(before);
  CHECK(weft::normal(ctx, {4}, {.deviation = 2.0}).to_vector<float>() == first && before.key == 7);
  const weft::tensor x(ctx, {1.f, 2.f});
  CHECK(ctx.program_text({x + 1}, weft::text_format::stablehlo).find("stablehlo.add") != std::string::npos);
  const weft::event done = ctx.eval({x * 3});
  done.wait();
  done.wait_for(std::chrono::seconds(1));
  CHECK(done.done() && done.fd() >= 0);
  CHECK(holds<float>(x.to_device(ctx.devices()[0]), {1, 2}));
  std::size_t records = 0;
  ctx.set_log(weft::log_level::debug, [&records](weft::log_level, std::string_view) { ++records; });
  CHECK(!(weft::tensor(ctx, std::vector<float>(17)) + 0.12345).to_string().empty());
  ctx.set_log(weft::log_level::off, [](weft::log_level, std::string_view) {});
  CHECK(records > 0);
  CHECK((x / 3).to_string({.precision = 2}) == "[0.33 0.67]");
#if defined(__cpp_lib_format)
  CHECK(std::format("{:.2} {} {}", x / 3, weft::f32, weft::error(weft::code::aborted, "no")) == "[0.33 0.67] f32 no");
  std::cout << "format\n";
#endif
}

// A long run ends within a tenth of a second or so, once somebody asks.
void cancelled() {
  const weft::context ctx({.platform = "cpu", .threads = 1, .cache_mode = "off"});
  const weft::tensor m = weft::tensor(ctx, std::vector<float>(512 * 512, 0.001f), {512, 512});
  const auto [last, n] = weft::while_loop(
      [](weft::tensor, weft::tensor i) { return i < 1000000; },
      [](weft::tensor a, weft::tensor i) { return std::pair(weft::matmul(a, a), i + 1); }, {m, weft::tensor(ctx, 0)});
  const weft::event running = ctx.eval({last, n});
  std::stop_source source;
  std::jthread asks([&source] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    source.request_stop();
  });
  const auto begun = std::chrono::steady_clock::now();
  CHECK(refused(weft::code::cancelled, [&] { running.wait(source.get_token()); }) != "nothing was thrown");
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  CHECK((weft::tensor(ctx, 2.f) * 2).item() == 4);  // the context is as good as before
}

void threads(const weft::context& ctx) {
  const weft::tensor shared(ctx, {1.f, 2.f, 3.f, 4.f});
  std::array<double, 4> sums{};
  {
    std::vector<std::jthread> all;
    for (std::size_t t = 0; t < 4; ++t) {
      all.emplace_back([&ctx, &sums, t, mine = shared] {
        for (int i = 0; i < 50; ++i) {
          weft::scope s(ctx);
          const weft::tensor y = weft::sum(mine * static_cast<double>(t + 1));
          sums[t] += y.item();
        }
      });
    }
  }
  CHECK(sums == std::array<double, 4>{500, 1000, 1500, 2000});
}

void beside_the_fluent_layer(const weft::context& ctx) {
  wf_scope* s = wf_begin(ctx.get());
  const weft::tensor x(ctx, {1.f, 2.f});
  const weft::tensor kept =
      weft::tensor::adopt(ctx.get(), wf_keep(s, wf_sum(s, wf_mul_n(s, x.get(), 2), WF_INTS(0), 1)));
  weft_error_release(wf_end(s));
  CHECK(holds<float>(kept, {6}));
}

}  // namespace

int main() {
  const std::string folder = std::filesystem::current_path().string();
  const weft::context ctx({.platform = "cpu", .threads = 2, .cache_mode = "off"});
  in_and_out(ctx);
  halves(ctx);
  mdspans(ctx);
  formulas(ctx);
  errors(ctx);
  scopes(ctx);
  functions(ctx, folder);
  control(ctx);
  nested(ctx);
  custom(ctx);
  groups(ctx);
  state(ctx, folder);
  around(ctx);
  cancelled();
  threads(ctx);
  beside_the_fluent_layer(ctx);
  return report();
}
