/* Data sets and samplers, where batches of loaders go, and bad input of all three. */
#define _POSIX_C_SOURCE 200809L
#include "folder.h"
#include "numbers.h"

/* --- Other sources and targets ---------------------------------------------------------------------------------------- */

static void tensors_memory_and_files_are_data_sets(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(6, 2)), *t[3] = {NULL, NULL, NULL};
  weft_dataset *tensors = NULL, *memory = NULL, *table = NULL, *both = NULL, *file = NULL;
  weft_tensor_info field;
  weft_rows rows;
  static unsigned char bytes[6] = {5, 4, 3, 2, 1, 0};
  weft_loader* loader;
  weft_tree* tree = NULL;
  weft_checkpoint_options save = WEFT_CHECKPOINT_OPTIONS_INIT;
  char path[400];
  const char* name = NULL;
  float f[4];
  unsigned char u[2];
  size_t n = 0, length = 9;
  int64_t items = 0;
  FILE* out;
  source s = new_source();
  memset(&field, 0, sizeof field);
  memset(&rows, 0, sizeof rows);
  MUST(weft_dataset_from_tensors(&x, 1, &tensors));
  field.dtype = WEFT_U8;
  rows.data = bytes;
  rows.size = sizeof bytes;
  MUST(weft_dataset_from_memory(6, &field, &rows, 1, &s, release_source, &memory));
  snprintf(path, sizeof path, "%s/table.csv", g_dir);
  out = fopen(path, "w");
  fprintf(out, "a;b\n0;1\n10;11\n20;21\n30;31\n40;41\n50;51\n");
  fclose(out);
  {
    weft_csv_options csv = WEFT_CSV_OPTIONS_INIT;
    csv.separator = ';';
    MUST(weft_dataset_open(path, WEFT_STRLEN, &csv, &table));
  }
  {
    weft_dataset* parts[3];
    parts[0] = tensors, parts[1] = memory, parts[2] = table;
    MUST(weft_dataset_zip(parts, 3, &both));
  }
  weft_dataset_release(tensors);
  weft_dataset_release(memory);
  weft_dataset_release(table);
  MUST(weft_dataset_field_count(both, &n));
  CHECK_EQUAL(n, 3);
  loader = loader_of(ctx, both, sampler_of(6, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 2, 0, 1), how(0, 0));
  MUST(weft_loader_next(loader, t, 3, &n));
  OK(weft_tensor_to_host(t[0], f, sizeof f));
  CHECK(f[0] == 0 && f[3] == 3);
  OK(weft_tensor_to_host(t[1], u, sizeof u));
  CHECK(u[0] == 5 && u[1] == 4);
  OK(weft_tensor_to_host(t[2], f, sizeof f));
  CHECK(f[0] == 0 && f[3] == 11);
  weft_tensor_release(t[0]), weft_tensor_release(t[1]), weft_tensor_release(t[2]);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, 0, "x", WEFT_STRLEN, x, NULL));
  save.format = WEFT_FORMAT_NPZ;
  snprintf(path, sizeof path, "%s/x.npz", g_dir);
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &save, NULL));
  MUST(weft_dataset_open(path, WEFT_STRLEN, NULL, &file));
  MUST(weft_dataset_count(file, &items));
  CHECK_EQUAL(items, 6);
  MUST(weft_dataset_field(file, 0, &field, &name, &length));
  CHECK_TEXT(name, "x");
  CHECK(length == 1 && field.dtype == WEFT_F32 && field.rank == 1 && field.dims[0] == 2);
  FAILS(weft_dataset_field(file, 1, &field, NULL, NULL), WEFT_OUT_OF_RANGE, "weft_dataset_field: field 1 of a data set that has 1");
  weft_dataset_release(file);
  snprintf(path, sizeof path, "%s/none", g_dir);
  FAILS_WITH(weft_dataset_open(path, WEFT_STRLEN, NULL, &file), WEFT_NOT_FOUND, "none'");
  weft_tree_release(tree);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void a_mesh_gets_its_parts_and_barriers_come_by_themselves(void) {
  weft_context* ctx = new_context_with("devices", "2");
  weft_mesh* mesh = NULL;
  weft_blob* spec = NULL;
  weft_loader_options options = how(0, 0);
  weft_loader* loader;
  weft_tensor* t = NULL;
  source s = new_source();
  size_t n = 0;
  int32_t got[4];
  int i;
  int64_t barriers;
  MUST(weft_mesh_create(ctx, NULL, 0, "data=2", WEFT_STRLEN, &mesh));
  options.mesh = mesh;
  options.axis = "data";
  options.axis_length = WEFT_STRLEN;
  options.batches_per_execution = 2;
  loader = loader_of(ctx, numbers(&s, 40), sampler_of(40, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), options);
  barriers = metric(ctx, "barriers");
  for (i = 0; i < 6; ++i) {
    MUST(weft_loader_next(loader, &t, 1, &n));
    MUST(weft_tensor_sharding(t, &spec));
    CHECK_TEXT((const char*)weft_blob_data(spec), "data");
    weft_blob_release(spec);
    OK(weft_tensor_to_host(t, got, sizeof got));
    CHECK_EQUAL(got[3], i * 4 + 3);
    weft_tensor_release(t);
  }
  CHECK_EQUAL(metric(ctx, "barriers") - barriers, 2); /* before the third and the fifth */
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
}

static void a_context_may_go_first(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(2, 2));
  weft_tensor* t = NULL;
  int32_t got[4];
  size_t n = 0;
  next_numbers(loader, got, 4);
  weft_context_release(ctx);
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_INVALID_ARGUMENT, "the loader's context");
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
}

/* --- Bad input -------------------------------------------------------------------------------------------------------- */

static void bad_data_sets_say_what_is_wrong(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_dataset_options options = WEFT_DATASET_OPTIONS_INIT;
  weft_tensor_info field;
  weft_rows rows;
  weft_dataset *dataset = NULL, *five = numbers(&s, 5), *six = numbers(&s, 6), *parts[2];
  weft_tensor *one = scalar(ctx, 1), *four = ramp(ctx, DIMS(4)), *two[2];
  weft_csv_options csv = WEFT_CSV_OPTIONS_INIT;
  memset(&field, 0, sizeof field);
  memset(&rows, 0, sizeof rows);
  options.user_data = &s;
  options.release = release_source;
  INVALID(weft_dataset_create(NULL, &dataset), "weft_dataset_create: options is NULL");
  INVALID(weft_dataset_create(&options, &dataset), "weft_dataset_create: options->read is NULL");
  CHECK_EQUAL(s.released, 1); /* also where the creation fails */
  options.read = read_numbers;
  INVALID(weft_dataset_create(&options, &dataset), "weft_dataset_create: field_count is 0; an item has at least one field");
  options.fields = &field;
  options.field_count = 1;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "dtype 0x0 is not one that Weft knows");
  field.dtype = WEFT_I4;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "elements of fields have whole bytes");
  field.dtype = WEFT_F32;
  field.rank = 33;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "field 0 has rank 33; at most 31 are allowed");
  field.rank = 1;
  field.dims[0] = -1;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "is negative");
  field.dims[0] = 2;
  options.count = -1;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "count is -1");
  options.count = 1;
  options.most_at_once = -1;
  FAILS_WITH(weft_dataset_create(&options, &dataset), WEFT_INVALID_ARGUMENT, "most_at_once is -1");
  FAILS_WITH(weft_dataset_from_memory(3, &field, &rows, 1, NULL, NULL, &dataset), WEFT_INVALID_ARGUMENT,
             "field 0 has 0 bytes; 3 items of f32[2] take 24");
  parts[0] = five, parts[1] = six;
  INVALID(weft_dataset_zip(parts, 2, &dataset), "weft_dataset_zip: data set 1 has 6 items, data set 0 has 5");
  INVALID(weft_dataset_zip(NULL, 0, &dataset), "weft_dataset_zip: there are no data sets");
  INVALID(weft_dataset_from_tensors(&one, 1, &dataset),
          "weft_dataset_from_tensors: field 0 is a scalar; items are the parts along the first dimension");
  two[0] = four, two[1] = ramp(ctx, DIMS(5));
  INVALID(weft_dataset_from_tensors(two, 2, &dataset), "weft_dataset_from_tensors: field 1 has 5 items, field 0 has 4");
  csv.separator = '\n';
  FAILS_WITH(weft_dataset_open("x", WEFT_STRLEN, &csv, &dataset), WEFT_INVALID_ARGUMENT, "separator is 10");
  FAILS_WITH(weft_dataset_open("", WEFT_STRLEN, NULL, &dataset), WEFT_INVALID_ARGUMENT, "path");
  CHECK(dataset == NULL);
  weft_tensor_release(two[1]);
  weft_tensor_release(one);
  weft_tensor_release(four);
  weft_dataset_release(five);
  weft_dataset_release(six);
  weft_context_release(ctx);
}

static void bad_samplers_and_loaders_say_what_is_wrong(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_sampler_options options = WEFT_SAMPLER_OPTIONS_INIT;
  weft_loader_options loading = WEFT_LOADER_OPTIONS_INIT;
  const double weights[2] = {1, NAN};
  weft_sampler *sampler = NULL, *of_four = sampler_of(4, WEFT_ORDER_RANDOM, WEFT_TAIL_PAD, 2, 0, 1);
  weft_dataset* dataset = numbers(&s, 5);
  weft_loader* loader = NULL;
  weft_tree* tree = NULL;
  weft_tensor* t = NULL;
  int64_t items[2], kept = 0, batches = 0;
  size_t n = 0;
  INVALID(weft_sampler_create(4, NULL, &sampler), "weft_sampler_create: options is NULL");
  options.batch = 2;
  INVALID(weft_sampler_create(0, &options, &sampler), "weft_sampler_create: a sampler needs items; there are 0");
  INVALID(weft_sampler_create(-1, &options, &sampler), "weft_sampler_create: a sampler needs items; there are -1");
  options.order = (weft_order)3;
  INVALID(weft_sampler_create(4, &options, &sampler), "weft_sampler_create: order is 3; there are 0 to 2");
  options.order = WEFT_ORDER_WEIGHTED;
  options.weights = weights;
  options.weight_count = 2;
  INVALID(weft_sampler_create(4, &options, &sampler), "weft_sampler_create: there are 2 weights for 4 items");
  INVALID(weft_sampler_create(2, &options, &sampler),
          "weft_sampler_create: weight 1 is nan; weights are finite and not negative");
  MUST(weft_sampler_batch(of_four, 3, 2, items, 2, &n, &kept));
  CHECK(n == 2 && kept == 2);
  FAILS(weft_sampler_batch(of_four, 0, 0, items, 1, &n, NULL), WEFT_OUT_OF_RANGE,
        "weft_sampler_batch: a batch has 2 items; capacity is 1");
  FAILS(weft_sampler_batch(of_four, 0, 4, items, 2, &n, NULL), WEFT_OUT_OF_RANGE,
        "weft_sampler_batch: epoch 0 has no batch at position 4");
  INVALID(weft_sampler_batches(of_four, 5, &batches),
          "weft_sampler_batches: position is 5; an epoch of this sampler has 4 items");
  INVALID(weft_loader_create(ctx, dataset, of_four, NULL, &loader),
          "weft_loader_create: the sampler is for 4 items, the data set has 5");
  weft_sampler_release(of_four);
  of_four = sampler_of(5, WEFT_ORDER_RANDOM, WEFT_TAIL_PAD, 2, 0, 1);
  loading.depth = -1;
  FAILS_WITH(weft_loader_create(ctx, dataset, of_four, &loading, &loader), WEFT_INVALID_ARGUMENT, "depth is -1; it is from 1 to 1024");
  loading.depth = 0;
  loading.threads = -1;
  FAILS_WITH(weft_loader_create(ctx, dataset, of_four, &loading, &loader), WEFT_INVALID_ARGUMENT, "threads is -1");
  loading.threads = 0;
  loading.timeout_ms = -1;
  FAILS_WITH(weft_loader_create(ctx, dataset, of_four, &loading, &loader), WEFT_INVALID_ARGUMENT, "timeout_ms is -1");
  loading.timeout_ms = 0;
  loading.batches_per_execution = -1;
  FAILS_WITH(weft_loader_create(ctx, dataset, of_four, &loading, &loader), WEFT_INVALID_ARGUMENT, "batches_per_execution is -1");
  loading.batches_per_execution = 0;
  {
    weft_job* job = NULL;
    weft_job_options alone = WEFT_JOB_OPTIONS_INIT;
    weft_sampler* second = sampler_of(5, WEFT_ORDER_RANDOM, WEFT_TAIL_PAD, 2, 1, 2);
    alone.size = 1;
    MUST(weft_job_join(&alone, &job));
    loading.job = job;
    FAILS_WITH(weft_loader_create(ctx, dataset, second, &loading, &loader), WEFT_INVALID_ARGUMENT,
               "the sampler is of rank 1 of 2, the job's rank is 0 of 1");
    weft_sampler_release(second);
    weft_job_release(job);
    loading.job = NULL;
  }
  loading.axis = "data";
  loading.axis_length = 4;
  FAILS_WITH(weft_loader_create(ctx, dataset, of_four, &loading, &loader), WEFT_INVALID_ARGUMENT, "axis is 'data', and there is no mesh");
  MUST(weft_loader_create(ctx, dataset, of_four, NULL, &loader));
  FAILS(weft_loader_next(loader, &t, 1, &n), WEFT_OUT_OF_RANGE, "weft_loader_next: a batch has 2 tensors; capacity is 1");
  MUST(weft_tree_create(&tree));
  FAILS(weft_loader_load(loader, tree, 0), WEFT_NOT_FOUND, "weft_loader_load: loader state has no 'seed'");
  MUST(weft_tree_add_i64(tree, 0, "seed", WEFT_STRLEN, 1, NULL));
  MUST(weft_tree_add_i64(tree, 0, "epoch", WEFT_STRLEN, 0, NULL));
  MUST(weft_tree_add_i64(tree, 0, "position", WEFT_STRLEN, 6, NULL));
  MUST(weft_tree_add_i64(tree, 0, "items", WEFT_STRLEN, 5, NULL));
  INVALID(weft_loader_load(loader, tree, 0), "weft_loader_load: position is 6; an epoch of this sampler has 5 items");
  weft_tree_release(tree);
  weft_loader_release(loader);
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_INVALID_ARGUMENT, "has been released");
  weft_sampler_release(of_four);
  weft_dataset_release(dataset);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

int main(void) {
  make_folder();
  tensors_memory_and_files_are_data_sets();
  a_mesh_gets_its_parts_and_barriers_come_by_themselves();
  a_context_may_go_first();
  bad_data_sets_say_what_is_wrong();
  bad_samplers_and_loaders_say_what_is_wrong();
  remove_folder();
  return done("data_sets");
}
