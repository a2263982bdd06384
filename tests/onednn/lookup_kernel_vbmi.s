/* What onednn/listings/lookup_kernel_vbmi.txt was assembled from:

   gcc -c

   As lookup_kernel.s, for CPUs whose permutations of bytes take two registers of a table.
   rdi: results, rsi: codes, rdx: how many, rcx: table (System V calling convention); it returns 0. All registers used are
   the callee's to change. */

        .intel_syntax noprefix
        .globl lookup
        .type lookup, @function
lookup:
        endbr64                             # may be called
        vmovdqu64 zmm16, [rcx]              # the table
        vmovdqu64 zmm17, [rcx+64]
        vmovdqu64 zmm18, [rcx+128]
        vmovdqu64 zmm19, [rcx+192]
        mov r8, -1                          # k6: the bytes of this block
        kmovq k6, r8
        test rdx, rdx                       # nothing to do
        je .Lend
.Lblock:
        cmp rdx, 64                         # the last block may be a part of one
        jae .Lwhole
        bzhi r8, r8, rdx
        kmovq k6, r8
.Lwhole:
        vmovdqu8 zmm20{k6}{z}, [rsi]        # 64 codes
        vpmovb2m k1, zmm20                  # c >= 128
        vmovdqa64 zmm21, zmm20
        vpermi2b zmm20, zmm16, zmm17        # as if c < 128
        vpermi2b zmm21, zmm18, zmm19        # as if not
        vmovdqu8 zmm20{k1}, zmm21
        vmovdqu8 [rdi]{k6}, zmm20
        add rsi, 64
        add rdi, 64
        sub rdx, 64
        ja .Lblock
.Lend:
        xor eax, eax                        # a status: success
        ret
        .size lookup, .-lookup
        .section .note.GNU-stack, "", @progbits
