#include "base/report/html.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/report/bench.h"
#include "base/text/utf8.h"
#include "base/units.h"

/* --c0 to --c7 are the series colours: distinct for the colour-blind on both grounds. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#5b6570;--line:#d9dee4;"
    "--band:#f5f7f9;--c0:#0068b5;--c1:#d1500b;--c2:#008566;--c3:#b0408a;--c4:#a06d00;"
    "--c5:#3d9bd6;--c6:#6d4bb8;--c7:#6b6b6b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e3e8ee;--dim:#98a3ae;"
    "--line:#323a43;--band:#1b2127;--c0:#58aaf0;--c1:#f58a4b;--c2:#3cc79f;--c3:#e383c0;"
    "--c4:#dcac3a;--c5:#9ad4f7;--c6:#b59af0;--c7:#adadad}}\n"
    "body{margin:0 auto;padding:1rem;max-width:78rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif}p,pre,figure,.legend{max-width:46rem}\n"
    "h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0 1rem}"
    "h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.5rem 0}"
    "p.where{color:var(--dim);font-size:.85rem;margin-top:-.75rem}"
    "details{border-top:1px solid var(--line);padding:.25rem 0}"
    "summary{cursor:pointer;font-weight:600;padding:.25rem 0}\n"
    ".wide{overflow-x:auto;margin:1rem 0}"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.3rem .7rem;text-align:left;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:600}"
    ".r{text-align:right}tbody tr:nth-child(even){background:var(--band)}\n"
    "figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.25rem}"
    ".legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.85rem;color:var(--dim)}"
    ".legend i{display:inline-block;width:1.1em;height:.25em;margin-right:.4em;"
    "vertical-align:.2em;border-radius:2px}\n"
    "svg{display:block;width:100%;min-width:30rem;height:auto;font:13px system-ui,sans-serif}"
    "svg text{fill:var(--fg)}svg .tick,svg .axis{fill:var(--dim)}svg .grid{stroke:var(--line)}"
    "svg .base{stroke:var(--dim)}svg .curve{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".c0{stroke:var(--c0);fill:var(--c0)}.c1{stroke:var(--c1);fill:var(--c1)}"
    ".c2{stroke:var(--c2);fill:var(--c2)}.c3{stroke:var(--c3);fill:var(--c3)}"
    ".c4{stroke:var(--c4);fill:var(--c4)}.c5{stroke:var(--c5);fill:var(--c5)}"
    ".c6{stroke:var(--c6);fill:var(--c6)}.c7{stroke:var(--c7);fill:var(--c7)}"
    "i.c0{background:var(--c0)}i.c1{background:var(--c1)}i.c2{background:var(--c2)}"
    "i.c3{background:var(--c3)}i.c4{background:var(--c4)}i.c5{background:var(--c5)}"
    "i.c6{background:var(--c6)}i.c7{background:var(--c7)}\n"
    "@media print{:root{--bg:#fff;--fg:#000}figure,tr{break-inside:avoid}}\n";

static void put(struct hw_html *html, const char *text, size_t len)
{
    if (html->error)
        return;
    errno = 0;
    if (fwrite(text, 1, len, html->out) != len)
        html->error = errno ? -errno : -EIO;
}

void hw_html_raw(struct hw_html *html, const char *markup)
{
    put(html, markup, strlen(markup));
}

/* XML has no way to write most control characters, nor the two non-characters. */
static bool is_writable(uint32_t code)
{
    if (code < 0x20)
        return code == '\t' || code == '\n' || code == '\r';
    return code != 0xfffe && code != 0xffff && code != HW_UTF8_REPLACEMENT;
}

void hw_html_text(struct hw_html *html, const char *text)
{
    for (size_t len = strlen(text); len > 0;) {
        uint32_t code;
        size_t used = hw_utf8_next(text, len, &code);
        if (code == '<')
            hw_html_raw(html, "&lt;");
        else if (code == '>')
            hw_html_raw(html, "&gt;");
        else if (code == '&')
            hw_html_raw(html, "&amp;");
        else if (code == '"')
            hw_html_raw(html, "&quot;");
        else if (is_writable(code))
            put(html, text, used);
        else
            hw_html_raw(html, "\xef\xbf\xbd");
        text += used;
        len -= used;
    }
}

void hw_html_number(struct hw_html *html, double value)
{
    char text[HW_FORMAT_CHARS];
    hw_html_raw(html, hw_format_double(text, round(value * 10) / 10));
}

static void element(struct hw_html *html, const char *open, const char *text, const char *close)
{
    hw_html_raw(html, open);
    hw_html_text(html, text);
    hw_html_raw(html, close);
}

void hw_html_begin(struct hw_html *html, FILE *out, const char *title)
{
    *html = (struct hw_html){.out = out};
    hw_html_raw(html, "<!DOCTYPE html>\n"
                      "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
                      "<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n");
    element(html, "<title>", title, "</title>\n<style>\n");
    hw_html_raw(html, style);
    element(html, "</style>\n</head>\n<body>\n<h1>", title, "</h1>\n");
    char host[HW_BENCH_HOST_CHARS], date[HW_UTC_CHARS];
    hw_bench_host(host);
    hw_utc(date);
    element(html, "<p class=\"where\">", host, "; commit ");
    hw_html_text(html, hw_bench_commit());
    element(html, "; ", date, "</p>\n");
}

int hw_html_end(struct hw_html *html)
{
    hw_html_raw(html, "</body>\n</html>\n");
    errno = 0;
    if (!html->error && fflush(html->out) != 0)
        html->error = errno ? -errno : -EIO;
    return html->error;
}

int hw_page_begin(struct hw_page *page, const char *path, const char *title)
{
    int rc = hw_output_open(&page->file, path, true, 0, NULL);
    if (rc == 0)
        hw_html_begin(&page->html, page->file.stream, title);
    return rc;
}

int hw_page_end(struct hw_page *page, int rc)
{
    int ended = hw_html_end(&page->html);
    return hw_output_finish(&page->file, rc ? rc : ended, NULL);
}

int hw_page_check(const char *path, char why[HW_OUTPUT_WHY_CHARS])
{
    struct hw_output file;
    int rc = hw_output_open(&file, path, true, 0, why);
    if (rc == 0)
        rc = hw_output_finish(&file, -ECANCELED, NULL); /* an error, so the file at path stays */
    return rc == -ECANCELED ? 0 : rc;
}

void hw_html_heading(struct hw_html *html, const char *text)
{
    element(html, "<h2>", text, "</h2>\n");
}

void hw_html_paragraph(struct hw_html *html, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0) {
        if (!html->error)
            html->error = -ENOMEM;
        return;
    }
    element(html, "<p>", text, "</p>\n");
    free(text);
}

void hw_html_fold_begin(struct hw_html *html, const char *title, bool open)
{
    hw_html_raw(html, open ? "<details open=\"open\">" : "<details>");
    element(html, "<summary>", title, "</summary>\n");
}

void hw_html_fold_end(struct hw_html *html)
{
    hw_html_raw(html, "</details>\n");
}

static void table_cell(struct hw_html *html, const char *tag, enum hw_align align, const char *text)
{
    hw_html_raw(html, "<");
    hw_html_raw(html, tag);
    element(html, align == HW_RIGHT ? " class=\"r\">" : ">", text, "</");
    hw_html_raw(html, tag);
    hw_html_raw(html, ">");
}

void hw_html_table(struct hw_html *html, const struct hw_table *table)
{
    if (!html->error)
        html->error = hw_table_error(table);
    size_t columns = hw_table_columns(table), rows = hw_table_rows(table);
    hw_html_raw(html, "<div class=\"wide\"><table>\n<thead><tr>");
    for (size_t c = 0; c < columns; c++)
        table_cell(html, "th", hw_table_align(table, c), hw_table_heading(table, c));
    hw_html_raw(html, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < rows; r++) {
        hw_html_raw(html, "<tr>");
        for (size_t c = 0; c < columns; c++)
            table_cell(html, "td", hw_table_align(table, c), hw_table_text(table, r, c));
        hw_html_raw(html, "</tr>\n");
    }
    hw_html_raw(html, "</tbody>\n</table></div>\n");
}
