/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/text.h"

#include <stdint.h>
#include <string.h>

/* Returns the length of the UTF-8 character at `s`, and sets `point` to its code point. Returns 0 if there is no
 * valid one by RFC 3629, which allows no overlong forms and no surrogates. */
static size_t utf8_next(const unsigned char *s, size_t left, uint32_t *point) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > left) return 0;
  *point = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (s[i] >> 6 != 2) return 0;
    *point = *point << 6 | (s[i] & 0x3Fu);
  }
  bool wrong = *point < least[length] || *point > 0x10FFFF || (*point >= 0xD800 && *point < 0xE000);
  return wrong ? 0 : length;
}

static bool is_control(uint32_t point) { return point < 0x20 || (point >= 0x7F && point < 0xA0); }

/* Returns what is wrong with the character at `s`, or NULL. Sets `length` to its number of bytes. */
static const char *character_wrong(const unsigned char *s, size_t left, size_t *length) {
  uint32_t point = 0;
  *length = utf8_next(s, left, &point);
  const char *wrong = *length == 0 ? "is not UTF-8" : is_control(point) ? "holds a control character" : NULL;
  if (*length == 0) *length = 1;
  return wrong;
}

const char *al_text_wrong(const char *text, size_t length) {
  const unsigned char *s = (const unsigned char *)text;
  const char *wrong = NULL;
  for (size_t i = 0, step; i < length && !wrong; i += step) wrong = character_wrong(s + i, length - i, &step);
  return wrong;
}

bool al_text_is_utf8(const char *text, size_t length) {
  uint32_t point;
  size_t step = 1;
  for (size_t i = 0; i < length && step > 0; i += step)
    step = utf8_next((const unsigned char *)text + i, length - i, &point);
  return step > 0;
}

void al_text_mend(char *text) {
  size_t length = strlen(text);
  for (size_t i = 0, step; i < length; i += step)
    if (character_wrong((unsigned char *)text + i, length - i, &step)) memset(text + i, '?', step);
}
