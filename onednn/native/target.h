/* From here on the compiler may use the instruction sets TARGETS; MSVC needs no word. */

#define PRAGMA(text) _Pragma(#text)
#define PRAGMA_OF(...) PRAGMA(__VA_ARGS__)
#if defined(__clang__)
PRAGMA_OF(clang attribute push(__attribute__((target(TARGETS))), apply_to = function))
#elif defined(__GNUC__)
PRAGMA_OF(GCC push_options)
PRAGMA_OF(GCC target(TARGETS))
#endif

/* A vector in a register: made once, and not joined with what follows. */
#ifdef _MSC_VER
#define KEPT(vector)
#else
#define KEPT(vector) __asm__("" : "+v"(vector))
#endif
