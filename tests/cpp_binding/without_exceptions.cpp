// libweft.hpp with -fno-exceptions -fno-rtti: failures are values, or wait in the open scope, or in the thread.
#include "check.hpp"

int main() {
  const weft::context ctx({.platform = "cpu", .threads = 1, .cache_mode = "off"});
  const weft::tensor x(ctx, {1.f, 2.f, 3.f}), two(ctx, {1.f, 2.f});
  const std::string why = "matmul(f32[3], f32[2]): x has 3 columns and y 2 rows; they must be equal";
  {
    weft::scope s(ctx);
    const weft::tensor spoiled = weft::matmul(x, two) * 2 + x;  // what is computed from a failure fails, too
    CHECK(!s.try_check());
    CHECK(spoiled.try_to_vector<float>().error().what() == why);
    const auto ended = s.try_end();
    CHECK(!ended && ended.error().what() == why);
  }
  (void)(weft::matmul(x, two) * 2 + x);  // the first failure is the one that is kept
  const auto failed = weft::take_failure();
  CHECK(!failed && failed.error().what() == why);
  CHECK(weft::take_failure().has_value());

  CHECK(weft::try_matmul(x, x)->item() == 14);
  CHECK(x.item() == 0 && !weft::take_failure());
  CHECK(holds<float>(weft::grad([](weft::tensor a) { return weft::sum(weft::square(a)); })(x), {2, 4, 6}));
  const auto traced =
      weft::function::try_trace(ctx, {{weft::f32, {3}}}, [](weft::tensor a) { return weft::reshape(a, {2}) + a; });
  CHECK(!traced && std::string(traced.error().what()).find("reshape(f32[3])") == 0);
  CHECK(!weft::context({.platform = "nowhere"}));
  CHECK(std::string(weft::take_failure().error().what()).find("'nowhere'") != std::string::npos);
  const auto limit = weft::custom(ctx, "limit", [](double v, double& out) -> weft::result<void> {
    if (v > 1.5) return weft::error(weft::code::out_of_range, "too large");
    out = v;
    return {};
  });
  CHECK(holds<double>(limit(weft::tensor(ctx, {1.0})), {1}));
  const auto large = limit(weft::tensor(ctx, {2.0})).one().try_item<double>();
  CHECK(!large && std::string(large.error().what()).find("too large") != std::string::npos);
  const auto tried = weft::try_call(
      [&] { return weft::scan([](weft::tensor c, weft::tensor e) { return weft::reshape(c, {2}) + e; }, {x}, {x}); });
  CHECK(!tried && std::string(tried.error().what()).find("reshape(f32[3])") == 0 && weft::take_failure());
  CHECK(weft::try_call([&] { return x + 1; }).has_value());
  const weft::tensor kept = ctx.step([&] { return x + 1; });
  CHECK(holds<float>(kept, {2, 3, 4}) && weft::take_failure());
  return report();
}
