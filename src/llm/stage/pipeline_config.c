/* Stages as the user writes them. */
#include "llm/model/why.h"
#include "llm/stage/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "5" or "0-15": the end is one past the last. */
static bool parse_layers(const char *text, struct llm_stage_layers *out)
{
    char *rest;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long first = strtoul(text, &rest, 10), last = first;
    if (*rest == '-' && rest[1] >= '0' && rest[1] <= '9')
        last = strtoul(rest + 1, &rest, 10);
    if (*rest || last < first || last >= LLM_LAYERS_MAX)
        return false;
    out->first = (uint32_t)first;
    out->end = (uint32_t)last + 1;
    return true;
}

/* Cuts the item at its '@'. */
static int parse_stage(char *item, struct llm_pipeline_stage *out, bool *has_place, char *why)
{
    char cause[RPC_WHY_CHARS] = "";
    snprintf(out->name, sizeof out->name, "%s", item);
    char *place = strchr(item, '@');
    if (place)
        *place++ = '\0';
    *has_place = place != NULL;
    if (!parse_layers(item, &out->layers))
        return llm_why(why, -EINVAL,
                       "'%.64s' is no run of layers; write 0-15@local,16-31@HOST:PORT", item);
    out->layers.is_local = !place || strcmp(place, "local") == 0;
    if (!out->layers.is_local && rpc_addr_parse(place, &out->addr, cause))
        return llm_why(why, -EINVAL, "'%.64s': %.160s", place, cause);
    return 0;
}

static int parse_items(char *text, struct llm_pipeline_config *out, char *why)
{
    uint32_t without = 0;
    char *save = NULL;
    for (char *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        bool has_place;
        if (out->count == LLM_STAGES_MAX)
            return llm_why(why, -EINVAL, "more than %d stages", LLM_STAGES_MAX);
        int rc = parse_stage(item, &out->stages[out->count], &has_place, why);
        if (rc)
            return rc;
        without += !has_place;
        out->count++;
    }
    out->is_stage = out->count == 1 && without == 1;
    if (out->count == 0 || (without > 0 && !out->is_stage))
        return llm_why(why, -EINVAL, "each stage has a place: write 0-15@local,16-31@HOST:PORT");
    return 0;
}

int llm_pipeline_parse(const char *text, struct llm_pipeline_config *out, char *why)
{
    char *copy = strdup(text);
    *out = (struct llm_pipeline_config){0};
    int rc = copy ? parse_items(copy, out, why) : llm_why(why, -ENOMEM, "no memory");
    free(copy);
    return rc;
}

int llm_pipeline_check(const struct llm_pipeline_config *c, uint32_t layers, char *why)
{
    uint32_t next = c->is_stage ? c->stages[0].layers.first : 0, local = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct llm_stage_layers *s = &c->stages[i].layers;
        if (s->end > layers)
            return llm_why(why, -EINVAL, "layer %u; the model has layers 0 to %u", s->end - 1,
                           layers - 1);
        if (s->first != next)
            return llm_why(why, -EINVAL, "layer %u %s; each layer has one stage, in order",
                           s->first < next ? s->first : next,
                           s->first < next ? "has two" : "has none");
        next = s->end;
        local += s->is_local;
    }
    if (local > 1)
        return llm_why(why, -EINVAL, "%u stages are local; one at most can be", local);
    if (next != layers && !c->is_stage)
        return llm_why(why, -EINVAL, "layer %u has none; the model has layers 0 to %u", next,
                       layers - 1);
    return 0;
}
