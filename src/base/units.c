#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/ascii.h"

struct unit {
    const char *name;
    uint64_t scale;
};

/* Largest first within what the formatters use. */
static const struct unit size_units[] = {
    {"TiB", UINT64_C(1) << 40},
    {"GiB", UINT64_C(1) << 30},
    {"MiB", UINT64_C(1) << 20},
    {"KiB", UINT64_C(1) << 10},
    {"B", 1},
    {"T", UINT64_C(1) << 40},
    {"G", UINT64_C(1) << 30},
    {"M", UINT64_C(1) << 20},
    {"K", UINT64_C(1) << 10},
    {"TB", UINT64_C(1000000000000)},
    {"GB", UINT64_C(1000000000)},
    {"MB", UINT64_C(1000000)},
    {"KB", UINT64_C(1000)},
    {"", 1},
};
enum { SIZE_UNITS_PRINTED = 5 };

static const struct unit duration_units[] = {
    {"m", 60 * HW_SEC}, {"s", HW_SEC}, {"ms", HW_MS}, {"us", HW_US}, {"ns", 1},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "12.34" as 1234 / 100.  Digits of the fraction past the 18th are dropped: they are worth less
 * than a byte in 2^59.  0, -EINVAL, -ERANGE; *text moves past the number on success. */
struct decimal {
    uint64_t whole;
    uint64_t fraction, fraction_scale; /* the latter 1 when there is no fraction */
};

static int read_decimal(const char **text, struct decimal *out)
{
    const char *at = *text;
    struct decimal d = {0, 0, 1};
    if (!is_digit(*at))
        return -EINVAL;
    bool overflow = false;
    for (; is_digit(*at); at++)
        overflow |= __builtin_mul_overflow(d.whole, 10, &d.whole) ||
                    __builtin_add_overflow(d.whole, (uint64_t)(*at - '0'), &d.whole);
    if (*at == '.') {
        at++;
        if (!is_digit(*at))
            return -EINVAL;
        for (; is_digit(*at); at++) {
            if (d.fraction_scale == UINT64_C(1000000000000000000))
                continue;
            d.fraction = d.fraction * 10 + (uint64_t)(*at - '0');
            d.fraction_scale *= 10;
        }
    }
    *text = at;
    *out = d;
    /* Reported last, so that "99...9 bananas" is malformed and not merely large. */
    return overflow ? -ERANGE : 0;
}

static int parse_scaled(const char *text, const struct unit *units, size_t count, uint64_t *out)
{
    struct decimal d;
    int rc = read_decimal(&text, &d);
    if (rc == -EINVAL)
        return rc;
    if (text[0] == ' ' && text[1] != '\0')
        text++;
    const struct unit *unit = NULL;
    for (size_t i = 0; i < count && !unit; i++)
        if (hw_ascii_same(text, units[i].name))
            unit = &units[i];
    bool bare_zero = *text == '\0' && rc == 0 && d.whole == 0 && d.fraction_scale == 1;
    if (!unit && !bare_zero)
        return -EINVAL;
    if (rc < 0)
        return rc;
    uint64_t scale = unit ? unit->scale : 1;
    if (scale == 1 && d.fraction_scale != 1)
        return -EINVAL; /* a part of a byte or of a nanosecond */
    unsigned __int128 value = (unsigned __int128)d.whole * scale;
    value += ((unsigned __int128)d.fraction * scale + d.fraction_scale / 2) / d.fraction_scale;
    if (value > UINT64_MAX)
        return -ERANGE;
    *out = (uint64_t)value;
    return 0;
}

int hw_parse_size(const char *text, uint64_t *bytes_out)
{
    return parse_scaled(text, size_units, ARRAY_LEN(size_units), bytes_out);
}

int hw_parse_duration(const char *text, uint64_t *ns_out)
{
    return parse_scaled(text, duration_units, ARRAY_LEN(duration_units), ns_out);
}

int hw_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    struct decimal d;
    int rc = read_decimal(&text, &d);
    if (rc == -EINVAL || *text != '\0' || d.fraction_scale != 1)
        return -EINVAL;
    if (rc < 0 || d.whole < min || d.whole > max)
        return -ERANGE;
    *out = d.whole;
    return 0;
}

/* NULL, which leaves the program's own locale in force, only when out of memory. */
static locale_t c_locale(void)
{
    static _Atomic(locale_t) cached;
    locale_t locale = atomic_load(&cached);
    if (locale)
        return locale;
    locale = newlocale(LC_ALL_MASK, "C", NULL);
    locale_t other = NULL;
    if (!locale || atomic_compare_exchange_strong(&cached, &other, locale))
        return locale;
    freelocale(locale); /* another thread was first */
    return other;
}

int hw_parse_double(const char *text, double min, double max, double *out)
{
    /* strtod also takes blanks, "inf", "nan" and hexadecimal; no setting means any of them. */
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return -EINVAL;
    char *end;
    locale_t locale = c_locale();
    double value = locale ? strtod_l(text, &end, locale) : strtod(text, &end);
    if (end == text || *end != '\0')
        return -EINVAL;
    if (!isfinite(value) || value < min || value > max)
        return -ERANGE;
    *out = value;
    return 0;
}

static int parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (hw_ascii_same(text, words[i])) {
            *out = i % 2 == 1;
            return 0;
        }
    }
    return -EINVAL;
}

/* value in its largest unit: exact when it is a multiple, else rounded to hundredths with no zero
 * at the end.  Integer arithmetic: nothing depends on the locale. */
static const char *format_scaled(char buf[HW_FORMAT_CHARS], uint64_t value,
                                 const struct unit *units, size_t count)
{
    const struct unit *unit = units;
    while (unit < units + count - 1 && value < unit->scale)
        unit++;
    uint64_t whole = value / unit->scale;
    uint64_t rest = value % unit->scale;
    uint64_t hundredths =
        (uint64_t)(((unsigned __int128)rest * 100 + unit->scale / 2) / unit->scale);
    if ((unsigned __int128)whole * unit->scale + (unsigned __int128)hundredths * unit->scale / 100 >
        UINT64_MAX)
        hundredths--; /* rounded down, so that it reads back */
    if (hundredths == 100) {
        whole++;
        hundredths = 0;
    }
    if (hundredths == 0)
        snprintf(buf, HW_FORMAT_CHARS, "%llu%s", (unsigned long long)whole, unit->name);
    else if (hundredths % 10 == 0)
        snprintf(buf, HW_FORMAT_CHARS, "%llu.%llu%s", (unsigned long long)whole,
                 (unsigned long long)hundredths / 10, unit->name);
    else
        snprintf(buf, HW_FORMAT_CHARS, "%llu.%02u%s", (unsigned long long)whole,
                 (unsigned)(hundredths % 100), unit->name); /* two digits: gcc counts them */
    return buf;
}

const char *hw_format_size(char buf[HW_FORMAT_CHARS], uint64_t bytes)
{
    return format_scaled(buf, bytes, size_units, SIZE_UNITS_PRINTED);
}

const char *hw_format_duration(char buf[HW_FORMAT_CHARS], uint64_t ns)
{
    if (ns == 0)
        return strcpy(buf, "0s");
    /* Minutes are left out: "1.67m" is harder to read than "100s". */
    return format_scaled(buf, ns, duration_units + 1, ARRAY_LEN(duration_units) - 1);
}

const char *hw_format_double(char buf[HW_FORMAT_CHARS], double value)
{
    if (!isfinite(value))
        return strcpy(buf, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    locale_t locale = c_locale();
    locale_t before = locale ? uselocale(locale) : NULL;
    if (value == trunc(value) && fabs(value) < 1e15) {
        snprintf(buf, HW_FORMAT_CHARS, "%.0f", value); /* 100, where %.1g would say 1e+02 */
    } else {
        int digits = 1;
        do {
            snprintf(buf, HW_FORMAT_CHARS, "%.*g", digits, value);
        } while (strtod(buf, NULL) != value && ++digits <= 17);
    }
    if (before)
        uselocale(before);
    return buf;
}

const char *hw_format_figure(char buf[HW_FORMAT_CHARS], double value)
{
    if (!isfinite(value))
        return strcpy(buf, isnan(value) ? "-" : value > 0 ? "inf" : "-inf");
    locale_t locale = c_locale();
    locale_t before = locale ? uselocale(locale) : NULL;
    double size = fabs(value);
    if (size >= 1000 && size < 1e15)
        snprintf(buf, HW_FORMAT_CHARS, "%.0f", value);
    else
        snprintf(buf, HW_FORMAT_CHARS, "%.4g", value);
    if (before)
        uselocale(before);
    return buf;
}

/* The variable, or NULL where the default holds. */
static const char *env_text(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int env_refuse(const char *name, const char *text, const char *form, const char *min,
                      const char *max, const char *def)
{
    hw_warn(HW_CAT_GENERAL, "%s='%s' is not %s from %s to %s; using %s", name, text, form, min, max,
            def);
    return -EINVAL;
}

int hw_env_size(const char *name, uint64_t def, uint64_t min, uint64_t max, uint64_t *out)
{
    assert(min <= max);
    const char *text = env_text(name);
    uint64_t value = def;
    *out = def;
    if (text && (hw_parse_size(text, &value) < 0 || value < min || value > max)) {
        char low[HW_FORMAT_CHARS], high[HW_FORMAT_CHARS], used[HW_FORMAT_CHARS];
        return env_refuse(name, text, "a size like 4096, 256KiB or 4MiB", hw_format_size(low, min),
                          hw_format_size(high, max), hw_format_size(used, def));
    }
    *out = value;
    return 0;
}

int hw_env_u64(const char *name, uint64_t def, uint64_t min, uint64_t max, uint64_t *out)
{
    assert(min <= max);
    const char *text = env_text(name);
    uint64_t value = def;
    *out = def;
    if (text && hw_parse_u64(text, min, max, &value) < 0) {
        char low[HW_FORMAT_CHARS], high[HW_FORMAT_CHARS], used[HW_FORMAT_CHARS];
        snprintf(low, sizeof low, "%llu", (unsigned long long)min);
        snprintf(high, sizeof high, "%llu", (unsigned long long)max);
        snprintf(used, sizeof used, "%llu", (unsigned long long)def);
        return env_refuse(name, text, "a whole number", low, high, used);
    }
    *out = value;
    return 0;
}

int hw_env_bool(const char *name, bool def, bool *out)
{
    const char *text = env_text(name);
    bool value = def;
    *out = def;
    if (text && parse_bool(text, &value) < 0) {
        hw_warn(HW_CAT_GENERAL, "%s='%s' is not 1, 0, true, false, yes, no, on or off; using %d",
                name, text, def);
        return -EINVAL;
    }
    *out = value;
    return 0;
}
