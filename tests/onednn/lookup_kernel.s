/* What onednn/listings/lookup_kernel.txt was assembled from:

   gcc -c

   rdi: results, rsi: codes, rdx: how many, rcx: table (System V calling convention); it returns 0. All registers used are
   the callee's to change. */

        .intel_syntax noprefix
        .globl lookup
        .type lookup, @function
lookup:
        endbr64                             # may be called
        vmovdqu64 zmm16, [rcx]              # the table as 128 words: entry 2i is the low byte of word i
        vmovdqu64 zmm17, [rcx+64]
        vmovdqu64 zmm18, [rcx+128]
        vmovdqu64 zmm19, [rcx+192]
        mov eax, 0x10001                    # masks of words: 1, 0x80, 0x100
        vpbroadcastd zmm20, eax
        vpsllw zmm21, zmm20, 7
        vpsllw zmm22, zmm20, 8
        mov rax, 0xaaaaaaaaaaaaaaaa         # k5: every second byte
        kmovq k5, rax
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
        vmovdqu8 zmm23{k6}{z}, [rsi]        # 64 codes: c in the low byte of each word, d in the high one
        vpsrlw zmm24, zmm23, 1              # word of c
        vpsrlw zmm25, zmm23, 9              # word of d
        vmovdqa64 zmm26, zmm24
        vmovdqa64 zmm27, zmm25
        vpermi2w zmm26, zmm16, zmm17        # as if c < 128
        vpermi2w zmm24, zmm18, zmm19        # as if not
        vpermi2w zmm27, zmm16, zmm17        # the same for d
        vpermi2w zmm25, zmm18, zmm19
        vptestmw k1, zmm23, zmm21           # c >= 128
        vpmovw2m k2, zmm23                  # d >= 128
        vptestmw k3, zmm23, zmm20           # c is odd: its entry is the high byte
        vptestnmw k4, zmm23, zmm22          # d is even: its entry is the low byte
        vmovdqu16 zmm26{k1}, zmm24
        vmovdqu16 zmm27{k2}, zmm25
        vpsrlw zmm26{k3}, zmm26, 8          # the entry of c into the low byte
        vpsllw zmm27{k4}, zmm27, 8          # the entry of d into the high byte
        vmovdqu8 zmm26{k5}, zmm27           # both
        vmovdqu8 [rdi]{k6}, zmm26
        add rsi, 64
        add rdi, 64
        sub rdx, 64
        ja .Lblock
.Lend:
        xor eax, eax                        # a status: success
        ret
        .size lookup, .-lookup
        .section .note.GNU-stack, "", @progbits
