/* The module `fqfuse.onednn._native`: FUNCTIONS, of every function that was compiled and that the CPU may have.

   It has no other use of Python, so that one binary serves every version of it: stable ABI, 3.11. */

#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "common.h"
#include "calls.h"

#if defined(X86) && !defined(_MSC_VER)
#include <cpuid.h>
#endif

#define TABLES(level) functions_##level[], fused_##level[]
extern const Function TABLES(plain), TABLES(avx2), TABLES(avx512), TABLES(avx512_vnni), functions_avx512_vbmi[], functions_avx512_amx[];

/* In a multiplication and addition that the library has to round together, plain C takes longer than NumPy. */
#ifdef FP_FAST_FMAF
#define PLAIN_FUSED "plain C"
#else
#define PLAIN_FUSED "plain C, not called"
#endif

#ifdef X86
/* Whether the CPU has AVX-512 VBMI, for which oneDNN has no name. */
static int has_vbmi(void) {
#ifdef _MSC_VER
  int found[4];
  __cpuidex(found, 7, 0);
  return found[2] >> 1 & 1;
#else
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 1 & 1);
#endif
}
#endif

/* Adds (level, kernel, function, address, members of its work) of each function of a table. */
static int add(PyObject *list, const char *level, const Function *each) {
  for (; each->name; each++) {
    PyObject *found = Py_BuildValue("(sssKs)", level, each->kernel, each->name,
                                    (unsigned long long)(uintptr_t)each->address, each->members);
    int failed = found == NULL || PyList_Append(list, found);
    Py_XDECREF(found);
    if (failed) return -1;
  }
  return 0;
}

/* From the least level to the largest. */
static int fill(PyObject *module) {
  PyObject *list = PyList_New(0);
  int failed = list == NULL || add(list, "plain C", functions_calls) || add(list, "plain C", functions_plain) ||
               add(list, PLAIN_FUSED, fused_plain);
#ifdef X86
  failed = failed || add(list, "avx2", functions_avx2) || add(list, "avx2", fused_avx2) ||
           add(list, "avx512_core", functions_avx512) || add(list, "avx512_core", fused_avx512) ||
           (has_vbmi() && add(list, "avx512_core", functions_avx512_vbmi)) ||
           add(list, "avx512_core_vnni", functions_avx512_vnni) || add(list, "avx512_core_vnni", fused_avx512_vnni) ||
           add(list, "avx512_core_amx", functions_avx512_amx);
#endif
  failed = failed || PyModule_AddObjectRef(module, "FUNCTIONS", list);
  Py_XDECREF(list);
  return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
