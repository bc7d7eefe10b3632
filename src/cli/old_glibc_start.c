/* Before 2.34 a program brought the loop over its constructors and gave it to glibc; the start files of later ones bring none and
 * ask for a __libc_start_main that has its own. This one, in between, gives the older function the loop, which newer ones call, too. */
typedef int (*Main)(int, char**, char**);
typedef void (*Constructor)(int, char**, char**);
typedef void (*End)(void);

int weft_libc_start_main(Main, int, char**, Constructor, End, End, void*);
__asm__(".symver weft_libc_start_main, __libc_start_main@GLIBC_2.2.5");

/* Bounds that the linker gives. */
extern const Constructor __preinit_array_start[], __preinit_array_end[], __init_array_start[], __init_array_end[];
#pragma GCC visibility push(hidden)
extern void _init(void);
#pragma GCC visibility pop

static void run_constructors(int count, char** arguments, char** environment) {
  const Constructor* each;
  for (each = __preinit_array_start; each != __preinit_array_end; ++each) (*each)(count, arguments, environment);
  _init();
  for (each = __init_array_start; each != __init_array_end; ++each) (*each)(count, arguments, environment);
}

int __libc_start_main(Main, int, char**, Constructor, End, End, void*);
int __libc_start_main(Main main_function, int count, char** arguments, Constructor none, End end, End loader_end, void* stack_end) {
  (void)none;
  return weft_libc_start_main(main_function, count, arguments, run_constructors, end, loader_end, stack_end);
}
