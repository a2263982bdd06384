/* To here. */

#if defined(__clang__)
PRAGMA_OF(clang attribute pop)
#elif defined(__GNUC__)
PRAGMA_OF(GCC pop_options)
#endif
