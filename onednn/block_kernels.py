"""4-bit codes in blocks: decoded as columns of a matrix, or multiplied by one row as they are. A few
instructions of AVX-512 that neither NumPy nor oneDNN 3.2 offers.

A table of the 16 codes in f32 fits into one register. A permutation by 16 codes looks them up in
one instruction, so that decoding costs about as much as writing the result: 0.15 ns a weight where
NumPy takes 2. In the product of a single row the table is decoded, once for each block, and the
looked-up weights are never written: 0.05 ns a weight.

Both functions take one argument, the address of a `Work`, and count its `next` up by themselves:
several threads that are given the same work share it. They are kept as listings
(`machine_code.py`), made by `gcc -O2` from tests/onednn/block_kernels.c.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import BackendUnavailable
from .enums import CpuIsa, CpuRuntime
from .library import Library
from .machine_code import Listing, mapped, runs_avx512
from .openmp import openmp_function

__all__ = ["DECODE_COLUMNS", "MULTIPLY_ROW", "BlockKernels", "Work", "block_kernels"]

TABLE: Final[npt.NDArray[np.float32]] = np.arange(16, dtype=np.float32)
PADDING: Final = 3
"""Bytes behind the zero points that may be read: they are fetched four at a time."""


class Work(ctypes.Structure):
    """What both functions read: addresses and sizes.

    Attributes:
        codes: of the first row; `stride` bytes a row, a multiple of 4.
        scales, zeros: f32 and u8 of each block, [rows, blocks]; `PADDING` bytes more of zeros.
        table: `TABLE`.
        x: the row that is multiplied, f32 [blocks * block]: of each 32 elements the even ones in
            front of the odd ones.
        out: f32: [blocks * block, ld] for columns, [rows] for a product.
        stride, blocks, block: bytes and blocks of a row, codes of a block (a multiple of 8, for a
            product of 32).
        rows: rows of codes, which are columns of the result.
        ld: f32 from one row of the result to the next; columns up to the next multiple of 64 are
            written.
        next: the row that is next; 0 in front of each call.
    """

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("codes", "scales", "zeros", "table", "x", "out")),
        *((name, ctypes.c_int64) for name in ("stride", "blocks", "block", "rows", "ld", "next")),
    )


# rdi: the work (System V calling convention)
DECODE_COLUMNS: Final[Listing] = (
    ("f30f1efa", "endbr64"),
    ("55", "push rbp"),
    ("4989fb", "mov r11, rdi"),
    ("c5f446c9", "kxnorw k1, k1, k1"),
    ("4889e5", "mov rbp, rsp"),
    ("4157", "push r15"),
    ("4c8d7f58", "lea r15, [rdi+0x58]"),
    ("4156", "push r14"),
    ("4155", "push r13"),
    ("4154", "push r12"),
    ("53", "push rbx"),
    ("4c8b4f50", "mov r9, qword ptr [rdi+0x50]"),
    ("488b4718", "mov rax, qword ptr [rdi+0x18]"),
    ("4a8d0c8d00000000", "lea rcx, [r9*4+0x0]"),
    ("49c1e105", "shl r9, 0x5"),
    ("4989cd", "mov r13, rcx"),
    ("62f17c481008", "vmovups zmm1, zmmword ptr [rax]"),
    ("b803000000", "mov eax, 0x3"),
    ("c462faf76740", "sarx r12, qword ptr [rdi+0x40], rax"),
    ("4d0fafec", "imul r13, r12"),
    ("b8ff000000", "mov eax, 0xff"),
    ("4e8d34a500000000", "lea r14, [r12*4+0x0]"),
    ("62e27d487cd0", "vpbroadcastd zmm18, eax"),
    ("62e17e485bf9", "vcvttps2dq zmm23, zmm1"),
    ("49c1e503", "shl r13, 0x3"),
    ("ba40000000", "mov edx, 0x40"),
    ("f0490fc117", "lock xadd qword ptr [r15], rdx"),
    ("498b4348", "mov rax, qword ptr [r11+0x48]"),
    ("4839d0", "cmp rax, rdx"),
    ("0f8e3e020000", "jle .+0x244"),
    ("8d7210", "lea esi, [rdx+0x10]"),
    ("83e801", "sub eax, 0x1"),
    ("62e27d487cf2", "vpbroadcastd zmm22, edx"),
    ("4531d2", "xor r10d, r10d"),
    ("62e27d487cee", "vpbroadcastd zmm21, esi"),
    ("8d7220", "lea esi, [rdx+0x20]"),
    ("62f27d487cc0", "vpbroadcastd zmm0, eax"),
    ("498b4338", "mov rax, qword ptr [r11+0x38]"),
    ("62e27d487ce6", "vpbroadcastd zmm20, esi"),
    ("8d7230", "lea esi, [rdx+0x30]"),
    ("62527d4858730c", "vpbroadcastd zmm14, dword ptr [r11+0x30]"),
    ("62a14d40fef7", "vpaddd zmm22, zmm22, zmm23"),
    ("62e27d487cde", "vpbroadcastd zmm19, esi"),
    ("62a15540feef", "vpaddd zmm21, zmm21, zmm23"),
    ("498b7328", "mov rsi, qword ptr [r11+0x28]"),
    ("62a15d40fee7", "vpaddd zmm20, zmm20, zmm23"),
    ("62a16540fedf", "vpaddd zmm19, zmm19, zmm23"),
    ("62f27d487cd0", "vpbroadcastd zmm2, eax"),
    ("62e24d4039f0", "vpminsd zmm22, zmm22, zmm0"),
    ("62e2554039e8", "vpminsd zmm21, zmm21, zmm0"),
    ("62c24d4040ce", "vpmulld zmm17, zmm22, zmm14"),
    ("62e25d4039e0", "vpminsd zmm20, zmm20, zmm0"),
    ("62e2654039d8", "vpminsd zmm19, zmm19, zmm0"),
    ("62c2554040c6", "vpmulld zmm16, zmm21, zmm14"),
    ("488d1c96", "lea rbx, [rsi+rdx*4]"),
    ("498b33", "mov rsi, qword ptr [r11]"),
    ("62525d4040fe", "vpmulld zmm15, zmm20, zmm14"),
    ("62a26d4840f6", "vpmulld zmm22, zmm2, zmm22"),
    ("6252654040f6", "vpmulld zmm14, zmm19, zmm14"),
    ("62e2554040ea", "vpmulld zmm21, zmm21, zmm2"),
    ("62e25d4040e2", "vpmulld zmm20, zmm20, zmm2"),
    ("62e2654040da", "vpmulld zmm19, zmm19, zmm2"),
    ("4885c0", "test rax, rax"),
    ("0f8e37ffffff", "jle .-0xc3"),
    ("498b4308", "mov rax, qword ptr [r11+0x8]"),
    ("c5f890f9", "kmovw k7, k1"),
    ("c5f890f1", "kmovw k6, k1"),
    ("4a8d1490", "lea rdx, [rax+r10*4]"),
    ("498b4310", "mov rax, qword ptr [r11+0x10]"),
    ("62727d46922cb2", "vgatherdps zmm13{k6}, dword ptr [rdx+zmm22*4]"),
    ("c5f890f1", "kmovw k6, k1"),
    ("62727d469224aa", "vgatherdps zmm12{k6}, dword ptr [rdx+zmm21*4]"),
    ("c5f890f1", "kmovw k6, k1"),
    ("62727d46921ca2", "vgatherdps zmm11{k6}, dword ptr [rdx+zmm20*4]"),
    ("4c01d0", "add rax, r10"),
    ("c5f890f1", "kmovw k6, k1"),
    ("62727d4692149a", "vgatherdps zmm10{k6}, dword ptr [rdx+zmm19*4]"),
    ("62727d47900c30", "vpgatherdd zmm9{k7}, dword ptr [rax+zmm22]"),
    ("c5f890f9", "kmovw k7, k1"),
    ("62727d47900428", "vpgatherdd zmm8{k7}, dword ptr [rax+zmm21]"),
    ("c5f890f9", "kmovw k7, k1"),
    ("62313548dbca", "vpandd zmm9, zmm9, zmm18"),
    ("62313d48dbc2", "vpandd zmm8, zmm8, zmm18"),
    ("62f27d47903c20", "vpgatherdd zmm7{k7}, dword ptr [rax+zmm20]"),
    ("c5f890f9", "kmovw k7, k1"),
    ("62b14548dbfa", "vpandd zmm7, zmm7, zmm18"),
    ("62517c485bc9", "vcvtdq2ps zmm9, zmm9"),
    ("62f27d47903418", "vpgatherdd zmm6{k7}, dword ptr [rax+zmm19]"),
    ("62517c485bc0", "vcvtdq2ps zmm8, zmm8"),
    ("62b14d48dbf2", "vpandd zmm6, zmm6, zmm18"),
    ("62f17c485bff", "vcvtdq2ps zmm7, zmm7"),
    ("62f17c485bf6", "vcvtdq2ps zmm6, zmm6"),
    ("4d85e4", "test r12, r12"),
    ("0f8ed9000000", "jle .+0xdf"),
    ("4e8d0436", "lea r8, [rsi+r14]"),
    ("4889df", "mov rdi, rbx"),
    ("c5f890d1", "kmovw k2, k1"),
    ("c5f890d9", "kmovw k3, k1"),
    ("c5f890e1", "kmovw k4, k1"),
    ("c5f890e9", "kmovw k5, k1"),
    ("62f27d42902c0e", "vpgatherdd zmm5{k2}, dword ptr [rsi+zmm17]"),
    ("4889f8", "mov rax, rdi"),
    ("ba08000000", "mov edx, 0x8"),
    ("62f27d43902406", "vpgatherdd zmm4{k3}, dword ptr [rsi+zmm16]"),
    ("62b27d4c901c3e", "vpgatherdd zmm3{k4}, dword ptr [rsi+zmm15]"),
    ("62b27d4d901436", "vpgatherdd zmm2{k5}, dword ptr [rsi+zmm14]"),
    ("4883c604", "add rsi, 0x4"),
    ("62f2554816c1", "vpermps zmm0, zmm5, zmm1"),
    ("62f1554872d504", "vpsrld zmm5, zmm5, 0x4"),
    ("62d17c485cc1", "vsubps zmm0, zmm0, zmm9"),
    ("62d17c4859c5", "vmulps zmm0, zmm0, zmm13"),
    ("62f17c481100", "vmovups zmmword ptr [rax], zmm0"),
    ("62f25d4816c1", "vpermps zmm0, zmm4, zmm1"),
    ("62f15d4872d404", "vpsrld zmm4, zmm4, 0x4"),
    ("62d17c485cc0", "vsubps zmm0, zmm0, zmm8"),
    ("62d17c4859c4", "vmulps zmm0, zmm0, zmm12"),
    ("62f17c48114001", "vmovups zmmword ptr [rax+0x40], zmm0"),
    ("62f2654816c1", "vpermps zmm0, zmm3, zmm1"),
    ("62f1654872d304", "vpsrld zmm3, zmm3, 0x4"),
    ("62f17c485cc7", "vsubps zmm0, zmm0, zmm7"),
    ("62d17c4859c3", "vmulps zmm0, zmm0, zmm11"),
    ("62f17c48114002", "vmovups zmmword ptr [rax+0x80], zmm0"),
    ("62f26d4816c1", "vpermps zmm0, zmm2, zmm1"),
    ("62f16d4872d204", "vpsrld zmm2, zmm2, 0x4"),
    ("62f17c485cc6", "vsubps zmm0, zmm0, zmm6"),
    ("62d17c4859c2", "vmulps zmm0, zmm0, zmm10"),
    ("62f17c48114003", "vmovups zmmword ptr [rax+0xc0], zmm0"),
    ("4801c8", "add rax, rcx"),
    ("83ea01", "sub edx, 0x1"),
    ("0f8575ffffff", "jne .-0x85"),
    ("4c01cf", "add rdi, r9"),
    ("4939f0", "cmp r8, rsi"),
    ("0f8531ffffff", "jne .-0xc9"),
    ("4c01eb", "add rbx, r13"),
    ("4983c201", "add r10, 0x1"),
    ("4d395338", "cmp qword ptr [r11+0x38], r10"),
    ("0f8f79feffff", "jg .-0x181"),
    ("e9abfdffff", "jmp .-0x250"),
    ("c5f877", "vzeroupper"),
    ("5b", "pop rbx"),
    ("415c", "pop r12"),
    ("415d", "pop r13"),
    ("415e", "pop r14"),
    ("415f", "pop r15"),
    ("5d", "pop rbp"),
    ("c3", "ret"),
)

MULTIPLY_ROW: Final[Listing] = (
    ("f30f1efa", "endbr64"),
    ("55", "push rbp"),
    ("488d4f58", "lea rcx, [rdi+0x58]"),
    ("c4410857f6", "vxorps xmm14, xmm14, xmm14"),
    ("4989f8", "mov r8, rdi"),
    ("6261fd086ed9", "vmovq xmm27, rcx"),
    ("4889e5", "mov rbp, rsp"),
    ("4157", "push r15"),
    ("4156", "push r14"),
    ("4155", "push r13"),
    ("4154", "push r12"),
    ("53", "push rbx"),
    ("4883e4c0", "and rsp, 0xffffffffffffffc0"),
    ("4883ec48", "sub rsp, 0x48"),
    ("488b4718", "mov rax, qword ptr [rdi+0x18]"),
    ("62f17c481008", "vmovups zmm1, zmmword ptr [rax]"),
    ("b805000000", "mov eax, 0x5"),
    ("c4e2faf74740", "sarx rax, qword ptr [rdi+0x40], rax"),
    ("4989c5", "mov r13, rax"),
    ("4889442420", "mov qword ptr [rsp+0x20], rax"),
    ("48c1e007", "shl rax, 0x7"),
    ("49c1e504", "shl r13, 0x4"),
    ("4889442418", "mov qword ptr [rsp+0x18], rax"),
    ("4c89e9", "mov rcx, r13"),
    ("6241fd087edf", "vmovq r15, xmm27"),
    ("b810000000", "mov eax, 0x10"),
    ("f0490fc107", "lock xadd qword ptr [r15], rax"),
    ("4889c2", "mov rdx, rax"),
    ("498b4048", "mov rax, qword ptr [r8+0x48]"),
    ("4989d6", "mov r14, rdx"),
    ("4839d0", "cmp rax, rdx"),
    ("0f8e76040000", "jle .+0x47c"),
    ("488d7210", "lea rsi, [rdx+0x10]"),
    ("4839c6", "cmp rsi, rax"),
    ("480f4ec6", "cmovle rax, rsi"),
    ("4889442410", "mov qword ptr [rsp+0x10], rax"),
    ("4839c2", "cmp rdx, rax"),
    ("7dc8", "jge .-0x36"),
    ("62c1fd086e4006", "vmovq xmm16, qword ptr [r8+0x30]"),
    ("498b4020", "mov rax, qword ptr [r8+0x20]"),
    ("4889d7", "mov rdi, rdx"),
    ("6241fd086ec8", "vmovq xmm25, r8"),
    ("62c1fd086e08", "vmovq xmm17, qword ptr [r8]"),
    ("498b5838", "mov rbx, qword ptr [r8+0x38]"),
    ("48894424c0", "mov qword ptr [rsp-0x40], rax"),
    ("62e1fd087ec0", "vmovq rax, xmm16"),
    ("62c1fd086e7802", "vmovq xmm23, qword ptr [r8+0x10]"),
    ("48c1e002", "shl rax, 0x2"),
    ("62e1fd087ece", "vmovq rsi, xmm17"),
    ("48895c24d0", "mov qword ptr [rsp-0x30], rbx"),
    ("c4417a7e7828", "vmovq xmm15, qword ptr [r8+0x28]"),
    ("62e1fd086ed8", "vmovq xmm19, rax"),
    ("62e1fd087ec0", "vmovq rax, xmm16"),
    ("4c0faff0", "imul r14, rax"),
    ("4c89f0", "mov rax, r14"),
    ("4989d6", "mov r14, rdx"),
    ("4801f0", "add rax, rsi"),
    ("4889442408", "mov qword ptr [rsp+0x8], rax"),
    ("4889d8", "mov rax, rbx"),
    ("48c1e304", "shl rbx, 0x4"),
    ("480faff8", "imul rdi, rax"),
    ("48895c24c8", "mov qword ptr [rsp-0x38], rbx"),
    ("4889c3", "mov rbx, rax"),
    ("498b4008", "mov rax, qword ptr [r8+0x8]"),
    ("4c8d249d00000000", "lea r12, [rbx*4+0x0]"),
    ("62c1fd086ed4", "vmovq xmm18, r12"),
    ("488d04b8", "lea rax, [rax+rdi*4]"),
    ("4989f8", "mov r8, rdi"),
    ("48894424f0", "mov qword ptr [rsp-0x10], rax"),
    ("488b442410", "mov rax, qword ptr [rsp+0x10]"),
    ("4d8d6e01", "lea r13, [r14+0x1]"),
    ("498d5e02", "lea rbx, [r14+0x2]"),
    ("62e1fd087ec7", "vmovq rdi, xmm16"),
    ("4d8d5e03", "lea r11, [r14+0x3]"),
    ("62e1fd087ec6", "vmovq rsi, xmm16"),
    ("62c1fd087ec1", "vmovq r9, xmm16"),
    ("4c8b542408", "mov r10, qword ptr [rsp+0x8]"),
    ("4939c5", "cmp r13, rax"),
    ("4d0f4dee", "cmovge r13, r14"),
    ("4839c3", "cmp rbx, rax"),
    ("490f4dde", "cmovge rbx, r14"),
    ("4939c3", "cmp r11, rax"),
    ("4d0f4dde", "cmovge r11, r14"),
    ("62e1fd087ec8", "vmovq rax, xmm17"),
    ("490faffd", "imul rdi, r13"),
    ("48891c24", "mov qword ptr [rsp], rbx"),
    ("480faff3", "imul rsi, rbx"),
    ("4c895c24f8", "mov qword ptr [rsp-0x8], r11"),
    ("4d0fafcb", "imul r9, r11"),
    ("4801c7", "add rdi, rax"),
    ("4801c6", "add rsi, rax"),
    ("4901c1", "add r9, rax"),
    ("488b4424d0", "mov rax, qword ptr [rsp-0x30]"),
    ("4989c4", "mov r12, rax"),
    ("4889c2", "mov rdx, rax"),
    ("4989c7", "mov r15, rax"),
    ("4d0fafe5", "imul r12, r13"),
    ("480fafd3", "imul rdx, rbx"),
    ("4d0faffb", "imul r15, r11"),
    ("4885c0", "test rax, rax"),
    ("0f8e2d030000", "jle .+0x333"),
    ("62e1fd087ef8", "vmovq rax, xmm23"),
    ("4c8b5c24f0", "mov r11, qword ptr [rsp-0x10]"),
    ("4c896c24e0", "mov qword ptr [rsp-0x20], r13"),
    ("c5c857f6", "vxorps xmm6, xmm6, xmm6"),
    ("4a8d1c20", "lea rbx, [rax+r12]"),
    ("62e1fd087ed0", "vmovq rax, xmm18"),
    ("4c897424d8", "mov qword ptr [rsp-0x28], r14"),
    ("62f17c4828fe", "vmovaps zmm7, zmm6"),
    ("4c01d8", "add rax, r11"),
    ("62717c4828de", "vmovaps zmm11, zmm6"),
    ("62717c4828d6", "vmovaps zmm10, zmm6"),
    ("4889442440", "mov qword ptr [rsp+0x40], rax"),
    ("488b4424c0", "mov rax, qword ptr [rsp-0x40]"),
    ("62717c4828ee", "vmovaps zmm13, zmm6"),
    ("62717c4828e6", "vmovaps zmm12, zmm6"),
    ("62717c4828c6", "vmovaps zmm8, zmm6"),
    ("62717c4828ce", "vmovaps zmm9, zmm6"),
    ("48894424e8", "mov qword ptr [rsp-0x18], rax"),
    ("4c89e0", "mov rax, r12"),
    ("4c29c0", "sub rax, r8"),
    ("4889442438", "mov qword ptr [rsp+0x38], rax"),
    ("4889d0", "mov rax, rdx"),
    ("4c29c0", "sub rax, r8"),
    ("4889442430", "mov qword ptr [rsp+0x30], rax"),
    ("4c89f8", "mov rax, r15"),
    ("4c29c0", "sub rax, r8"),
    ("4889442428", "mov qword ptr [rsp+0x28], rax"),
    ("488b4424e8", "mov rax, qword ptr [rsp-0x18]"),
    ("4989dd", "mov r13, rbx"),
    ("4d29e5", "sub r13, r12"),
    ("48837c242000", "cmp qword ptr [rsp+0x20], 0x0"),
    ("470fb6740500", "movzx r14d, byte ptr [r13+r8+0x0]"),
    ("62d10e087be6", "vcvtusi2ss xmm4, xmm14, r14d"),
    ("440fb633", "movzx r14d, byte ptr [rbx]"),
    ("62d10e087bee", "vcvtusi2ss xmm5, xmm14, r14d"),
    ("4c8b742438", "mov r14, qword ptr [rsp+0x38]"),
    ("62f27d4818e4", "vbroadcastss zmm4, xmm4"),
    ("62f174485ce4", "vsubps zmm4, zmm1, zmm4"),
    ("62f27d4818ed", "vbroadcastss zmm5, xmm5"),
    ("62f174485ced", "vsubps zmm5, zmm1, zmm5"),
    ("62d15c585923", "vmulps zmm4, zmm4, DWORD BCST [r11]"),
    ("62915458592cb3", "vmulps zmm5, zmm5, DWORD BCST [r11+r14*4]"),
    ("450fb6741500", "movzx r14d, byte ptr [r13+rdx+0x0]"),
    ("470fb66c3d00", "movzx r13d, byte ptr [r13+r15+0x0]"),
    ("62d10e087bd6", "vcvtusi2ss xmm2, xmm14, r14d"),
    ("4c8b742430", "mov r14, qword ptr [rsp+0x30]"),
    ("62d10e087bdd", "vcvtusi2ss xmm3, xmm14, r13d"),
    ("62f27d4818d2", "vbroadcastss zmm2, xmm2"),
    ("62f174485cd2", "vsubps zmm2, zmm1, zmm2"),
    ("62f27d4818db", "vbroadcastss zmm3, xmm3"),
    ("62f174485cdb", "vsubps zmm3, zmm1, zmm3"),
    ("62916c585914b3", "vmulps zmm2, zmm2, DWORD BCST [r11+r14*4]"),
    ("4c8b742428", "mov r14, qword ptr [rsp+0x28]"),
    ("62916458591cb3", "vmulps zmm3, zmm3, DWORD BCST [r11+r14*4]"),
    ("0f8ecb000000", "jle .+0xd1"),
    ("4531ed", "xor r13d, r13d"),
    ("62827d4831242a", "vpmovzxbd zmm20, xmmword ptr [r10+r13]"),
    ("62217c481054e801", "vmovups zmm26, zmmword ptr [rax+r13*8+0x40]"),
    ("62b27d4831042f", "vpmovzxbd zmm0, xmmword ptr [rdi+r13]"),
    ("62a17c48102ce8", "vmovups zmm21, zmmword ptr [rax+r13*8]"),
    ("62e25d4016f4", "vpermps zmm22, zmm20, zmm4"),
    ("62b15d4072d404", "vpsrld zmm20, zmm20, 0x4"),
    ("62e25d4016e4", "vpermps zmm20, zmm20, zmm4"),
    ("62324d40b8cd", "vfmadd231ps zmm9, zmm22, zmm21"),
    ("62125d40b8d2", "vfmadd231ps zmm10, zmm20, zmm26"),
    ("62e27d4816e5", "vpermps zmm20, zmm0, zmm5"),
    ("62f17d4872d004", "vpsrld zmm0, zmm0, 0x4"),
    ("62325d40b8c5", "vfmadd231ps zmm8, zmm20, zmm21"),
    ("62f27d4816c5", "vpermps zmm0, zmm0, zmm5"),
    ("62127d48b8da", "vfmadd231ps zmm11, zmm0, zmm26"),
    ("62b27d4831042e", "vpmovzxbd zmm0, xmmword ptr [rsi+r13]"),
    ("62e27d4816e2", "vpermps zmm20, zmm0, zmm2"),
    ("62f17d4872d004", "vpsrld zmm0, zmm0, 0x4"),
    ("62f27d4816c2", "vpermps zmm0, zmm0, zmm2"),
    ("62325d40b8e5", "vfmadd231ps zmm12, zmm20, zmm21"),
    ("62927d48b8fa", "vfmadd231ps zmm7, zmm0, zmm26"),
    ("62927d48310429", "vpmovzxbd zmm0, xmmword ptr [r9+r13]"),
    ("4983c510", "add r13, 0x10"),
    ("62e27d4816e3", "vpermps zmm20, zmm0, zmm3"),
    ("62f17d4872d004", "vpsrld zmm0, zmm0, 0x4"),
    ("62f27d4816c3", "vpermps zmm0, zmm0, zmm3"),
    ("62325d40b8ed", "vfmadd231ps zmm13, zmm20, zmm21"),
    ("62927d48b8f2", "vfmadd231ps zmm6, zmm0, zmm26"),
    ("4c39e9", "cmp rcx, r13"),
    ("0f854cffffff", "jne .-0xae"),
    ("4c8b742418", "mov r14, qword ptr [rsp+0x18]"),
    ("4901ca", "add r10, rcx"),
    ("4801cf", "add rdi, rcx"),
    ("4801ce", "add rsi, rcx"),
    ("4901c9", "add r9, rcx"),
    ("4c01f0", "add rax, r14"),
    ("4983c304", "add r11, 0x4"),
    ("4883c301", "add rbx, 0x1"),
    ("4c395c2440", "cmp qword ptr [rsp+0x40], r11"),
    ("0f8588feffff", "jne .-0x172"),
    ("62f1144858f6", "vaddps zmm6, zmm13, zmm6"),
    ("4c8b6c24e0", "mov r13, qword ptr [rsp-0x20]"),
    ("4c8b7424d8", "mov r14, qword ptr [rsp-0x28]"),
    ("62f11c4858ff", "vaddps zmm7, zmm12, zmm7"),
    ("62513c4858c3", "vaddps zmm8, zmm8, zmm11"),
    ("6251344858ca", "vaddps zmm9, zmm9, zmm10"),
    ("6273fd481bca01", "vextractf64x4 ymm2, zmm9, 0x1"),
    ("c461f97ef8", "vmovq rax, xmm15"),
    ("488b1424", "mov rdx, qword ptr [rsp]"),
    ("c4c16c58d1", "vaddps ymm2, ymm2, ymm9"),
    ("c4e37d19d301", "vextractf128 xmm3, ymm2, 0x1"),
    ("c5e058da", "vaddps xmm3, xmm3, xmm2"),
    ("c4e37904d34e", "vpermilps xmm2, xmm3, 0x4e"),
    ("c5e858d3", "vaddps xmm2, xmm2, xmm3"),
    ("c5f828da", "vmovaps xmm3, xmm2"),
    ("c5e8c6d255", "vshufps xmm2, xmm2, xmm2, 0x55"),
    ("c5e258d2", "vaddss xmm2, xmm3, xmm2"),
    ("c4a17a1114b0", "vmovss dword ptr [rax+r14*4], xmm2"),
    ("6273fd481bc201", "vextractf64x4 ymm2, zmm8, 0x1"),
    ("4983c604", "add r14, 0x4"),
    ("c4c16c58d0", "vaddps ymm2, ymm2, ymm8"),
    ("c4e37d19d301", "vextractf128 xmm3, ymm2, 0x1"),
    ("c5e058da", "vaddps xmm3, xmm3, xmm2"),
    ("c4e37904d34e", "vpermilps xmm2, xmm3, 0x4e"),
    ("c5e858d3", "vaddps xmm2, xmm2, xmm3"),
    ("c5f828da", "vmovaps xmm3, xmm2"),
    ("c5e8c6d255", "vshufps xmm2, xmm2, xmm2, 0x55"),
    ("c5e258d2", "vaddss xmm2, xmm3, xmm2"),
    ("c4a17a1114a8", "vmovss dword ptr [rax+r13*4], xmm2"),
    ("62f3fd481bfa01", "vextractf64x4 ymm2, zmm7, 0x1"),
    ("c5ec58d7", "vaddps ymm2, ymm2, ymm7"),
    ("c4e37d19d301", "vextractf128 xmm3, ymm2, 0x1"),
    ("c5e058da", "vaddps xmm3, xmm3, xmm2"),
    ("c4e37904d34e", "vpermilps xmm2, xmm3, 0x4e"),
    ("c5e858d3", "vaddps xmm2, xmm2, xmm3"),
    ("c5f828da", "vmovaps xmm3, xmm2"),
    ("c5e8c6d255", "vshufps xmm2, xmm2, xmm2, 0x55"),
    ("c5e258d2", "vaddss xmm2, xmm3, xmm2"),
    ("c5fa111490", "vmovss dword ptr [rax+rdx*4], xmm2"),
    ("62f3fd481bf201", "vextractf64x4 ymm2, zmm6, 0x1"),
    ("488b5424f8", "mov rdx, qword ptr [rsp-0x8]"),
    ("c5ec58d6", "vaddps ymm2, ymm2, ymm6"),
    ("c4e37d19d301", "vextractf128 xmm3, ymm2, 0x1"),
    ("c5e058da", "vaddps xmm3, xmm3, xmm2"),
    ("c4e37904d34e", "vpermilps xmm2, xmm3, 0x4e"),
    ("c5e858d3", "vaddps xmm2, xmm2, xmm3"),
    ("c5f828da", "vmovaps xmm3, xmm2"),
    ("c5e8c6d255", "vshufps xmm2, xmm2, xmm2, 0x55"),
    ("c5e258d2", "vaddss xmm2, xmm3, xmm2"),
    ("c5fa111490", "vmovss dword ptr [rax+rdx*4], xmm2"),
    ("62e1fd087ed0", "vmovq rax, xmm18"),
    ("62e1fd087eda", "vmovq rdx, xmm19"),
    ("4901c0", "add r8, rax"),
    ("4801542408", "add qword ptr [rsp+0x8], rdx"),
    ("488b5424c8", "mov rdx, qword ptr [rsp-0x38]"),
    ("48015424f0", "add qword ptr [rsp-0x10], rdx"),
    ("4c39742410", "cmp qword ptr [rsp+0x10], r14"),
    ("0f8f5afcffff", "jg .-0x3a0"),
    ("6241fd087ec8", "vmovq r8, xmm25"),
    ("e983fbffff", "jmp .-0x478"),
    ("c4413157c9", "vxorpd xmm9, xmm9, xmm9"),
    ("6251fd4828c1", "vmovapd zmm8, zmm9"),
    ("62d1fd4828f9", "vmovapd zmm7, zmm9"),
    ("62d1fd4828f1", "vmovapd zmm6, zmm9"),
    ("e9d6feffff", "jmp .-0x125"),
    ("c5f877", "vzeroupper"),
    ("488d65d8", "lea rsp, [rbp-0x28]"),
    ("5b", "pop rbx"),
    ("415c", "pop r12"),
    ("415d", "pop r13"),
    ("415e", "pop r14"),
    ("415f", "pop r15"),
    ("5d", "pop rbp"),
    ("c3", "ret"),
)


@dataclass(frozen=True)
class BlockKernels:
    """The two functions, on the threads that oneDNN's own primitives use.

    Attributes:
        decode, multiply: addresses.
        parallel: runs a function in several threads; None: in this one.
    """

    decode: int
    multiply: int
    parallel: Any

    def call(
        self, address: int, work: Work, threads: int, held: object = None
    ) -> Callable[[], None]:
        """A call without arguments. It holds the work and what it is told to; of the other arrays it
        knows the addresses alone.
        """
        argument = ctypes.c_void_p(ctypes.addressof(work))
        alone: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        if threads > 1 and self.parallel is not None:
            run = functools.partial(
                self.parallel,
                ctypes.c_void_p(address),
                argument,
                ctypes.c_uint(threads),
                ctypes.c_uint(0),
            )
        else:
            run = functools.partial(alone, argument)

        def call(held: object = held) -> None:  # noqa: ARG001
            work.next = 0
            run()

        return call


def block_kernels(library: Library) -> BlockKernels | None:
    """The functions; None where they cannot run: other systems, CPUs without AVX-512."""
    isa: CpuIsa = library.effective_isa()
    found = _mapped() if runs_avx512(isa) else None
    if found is None:
        return None
    parallel = None
    if library.version.cpu_runtime == CpuRuntime.openmp:
        kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        try:
            parallel = openmp_function(library.c, "GOMP_parallel", kinds, None)
        except BackendUnavailable:  # another OpenMP than GNU's: one thread
            parallel = None
    return BlockKernels(*found, parallel)


@functools.cache
def _mapped() -> tuple[int, int] | None:
    decode, multiply = mapped(DECODE_COLUMNS), mapped(MULTIPLY_ROW)
    return None if decode is None or multiply is None else (decode, multiply)
