/* Learning rates of each kind at every step beside their formulas, written out; what cannot be. */
#include "check.h"

static const double kPi = 3.14159265358979323846;

static double at(const weft_schedule_options* o, int64_t step) {
  double rate = -1;
  MUST(weft_schedule_rate(o, step, &rate));
  return rate;
}

static void near_to(double have, double want, int line) {
  if (fabs(have - want) <= 1e-14) return;
  printf("%s:%d: %.17g, not %.17g\n", __FILE__, line, have, want);
  ++g_failures;
}
#define NEAR(have, want) near_to((have), (want), __LINE__)

static void every_kind_follows_its_formula(void) {
  weft_schedule_options o = WEFT_SCHEDULE_OPTIONS_INIT;
  int t;
  o.rate = 0.5;
  for (t = 0; t < 20; ++t) NEAR(at(&o, t), 0.5);
  o.warmup = 4, o.steps = 12, o.end = 0.1, o.every = 3, o.factor = 0.5;
  for (t = 0; t < 20; ++t) {
    const int n = t - 4;
    const double done = n < 8 ? n / 8.0 : 1;
    o.kind = WEFT_SCHEDULE_LINEAR;
    NEAR(at(&o, t), n < 0 ? 0.125 * (t + 1) : 0.5 + (0.1 - 0.5) * done);
    o.kind = WEFT_SCHEDULE_COSINE;
    NEAR(at(&o, t), n < 0 ? 0.125 * (t + 1) : 0.1 + 0.4 * 0.5 * (1 + cos(kPi * done)));
    o.kind = WEFT_SCHEDULE_STEP;
    NEAR(at(&o, t), n < 0 ? 0.125 * (t + 1) : 0.5 * pow(0.5, n / 3));
    o.kind = WEFT_SCHEDULE_EXPONENTIAL;
    NEAR(at(&o, t), n < 0 ? 0.125 * (t + 1) : 0.5 * pow(0.5, n));
  }
}

/* PyTorch 2.15: OneCycleLR(SGD([w], 1), max_lr=1, total_steps=10), and with pct_start=0.5, div_factor=10, final_div_factor=100. */
static void one_cycle_is_pytorchs(void) {
  static const double usual[10] = {0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
                                   0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06};
  static const double other[10] = {0.09999999999999998, 0.23180194846605362, 0.55, 0.8681980515339464, 1.0, 0.9046039886902862,
                                   0.6548539886902862, 0.3461460113097138, 0.0963960113097138, 0.001};
  weft_schedule_options o = WEFT_SCHEDULE_OPTIONS_INIT;
  int t;
  o.kind = WEFT_SCHEDULE_ONE_CYCLE;
  o.rate = 1, o.steps = 10;
  for (t = 0; t < 10; ++t) NEAR(at(&o, t), usual[t]);
  NEAR(at(&o, 100), 4e-06);
  o.start = 0.5, o.divide = 10, o.final_divide = 100;
  for (t = 0; t < 10; ++t) NEAR(at(&o, t), other[t]);
}

static void what_cannot_be(void) {
  weft_schedule_options o = WEFT_SCHEDULE_OPTIONS_INIT;
  double rate = 7;
  FAILS_WITH(weft_schedule_rate(NULL, 0, &rate), WEFT_INVALID_ARGUMENT, "schedule");
  FAILS_WITH(weft_schedule_rate(&o, 0, NULL), WEFT_INVALID_ARGUMENT, "out_rate");
  INVALID(weft_schedule_rate(&o, -1, &rate), "weft_schedule_rate: step is -1; it must be 0 or more");
  o.rate = -0.5;
  INVALID(weft_schedule_rate(&o, 0, &rate), "weft_schedule_options.rate is -0.5; it must be 0 or more and finite");
  o.rate = NAN;
  FAILS_WITH(weft_schedule_rate(&o, 0, &rate), WEFT_INVALID_ARGUMENT, "rate is nan");
  o.rate = 1;
  o.kind = (weft_schedule_kind)6;
  FAILS_WITH(weft_schedule_rate(&o, 0, &rate), WEFT_UNIMPLEMENTED, "kind is 6");
  o.kind = WEFT_SCHEDULE_COSINE;
  INVALID(weft_schedule_rate(&o, 0, &rate), "weft_schedule_options.steps is 0; it must be 1 or more");
  o.kind = WEFT_SCHEDULE_STEP;
  INVALID(weft_schedule_rate(&o, 0, &rate), "weft_schedule_options.every is 0; it must be 1 or more");
  o.kind = WEFT_SCHEDULE_ONE_CYCLE;
  o.steps = 5, o.warmup = 1;
  FAILS_WITH(weft_schedule_rate(&o, 0, &rate), WEFT_INVALID_ARGUMENT, "warmup is 1; it must be 0 of a one-cycle schedule");
  o.warmup = 0, o.start = 1;
  FAILS_WITH(weft_schedule_rate(&o, 0, &rate), WEFT_INVALID_ARGUMENT, "start is 1; it must be above 0 and below 1");
  o.struct_size = 3;
  FAILS_WITH(weft_schedule_rate(&o, 0, &rate), WEFT_INVALID_ARGUMENT, "struct_size is 3");
  CHECK(rate == 7);
}

int main(void) {
  every_kind_follows_its_formula();
  one_cycle_is_pytorchs();
  what_cannot_be();
  return done("schedules");
}
