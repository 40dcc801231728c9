"""What models of several families write when they call tools, as (template, control tokens, grammar, parts).

The grammar makes the test's model write it; a control token is <[NUMBER]>.  Each calls get_weather and noop
after "Well." and, where reasoning is said, after that."""
CITY = r'{\"city\": \"Rom\", \"days\": 3}'
CALLS = [("get_weather", {"city": "Rom", "days": 3}), ("noop", {})]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
         for name, properties in (("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
                                  ("noop", {}))]


def written(*parts):
    """A grammar of texts and of numbers, which are control tokens."""
    return "root ::= " + " ".join(f"<[{part}]>" if isinstance(part, int) else f'"{part}"' for part in parts)


def template(*tells):
    return "{{ messages[-1].content }}{# " + " ".join(tells) + " #}"


DEEPSEEK = {1500: "<｜tool▁calls▁begin｜>", 1501: "<｜tool▁call▁begin｜>", 1502: "<｜tool▁sep｜>",
            1503: "<｜tool▁call▁end｜>", 1504: "<｜tool▁calls▁end｜>"}
KIMI = {1500: "<|tool_calls_section_begin|>", 1501: "<|tool_call_begin|>", 1502: "<|tool_call_argument_begin|>",
        1503: "<|tool_call_end|>", 1504: "<|tool_calls_section_end|>"}
GPT_OSS = {1500: "<|channel|>", 1501: "<|message|>", 1502: "<|start|>", 1503: "<|end|>", 1504: "<|constrain|>",
           1505: "<|return|>"}
FAMILIES = {
    "DeepSeek R1": (template("<｜tool▁sep｜>", "```json", "</think>"), DEEPSEEK, written(
        r"<think>Hm.</think>Well.", 1500, 1501, "function", 1502, rf"get_weather\n```json\n{CITY}\n```", 1503, r"\n", 1501,
        "function", 1502, r"noop\n```json\n{}\n```", 1503, 1504), "Hm."),
    "DeepSeek V3.1": (template("<｜tool▁sep｜>"), DEEPSEEK, written(
        "Well.", 1500, 1501, "get_weather", 1502, CITY, 1503, 1501, "noop", 1502, "{}", 1503, 1504), None),
    "Kimi K2": (template("<|tool_call_begin|>"), KIMI, written(
        "Well.", 1500, 1501, "functions.get_weather:0", 1502, CITY, 1503, 1501, "functions.noop:1", 1502, "{}", 1503,
        1504), None),
    "GLM 4.6": (template("<arg_key>", "</think>"), {1500: "<tool_call>", 1501: "</tool_call>"}, written(
        r"\n<think>Hm.</think>\nWell.", 1500,
        r"get_weather\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3"
        r"</arg_value>\n", 1501, r"\n", 1500, r"noop\n", 1501), "Hm."),
    "Gemma 4": (template("<|tool_call>"), {1500: "<|tool_call>", 1501: "<tool_call|>", 1502: '<|"|>'}, written(
        "Well.", 1500, "call:get_weather{city:", 1502, "Rom", 1502, ",days:3}", 1501, 1500, "call:noop{}", 1501), None),
    "LFM 2": (template("List of tools: "), {1500: "<|tool_call_start|>", 1501: "<|tool_call_end|>"}, written(
        "Well.", 1500, "[get_weather(city='Rom', days=3), noop()]", 1501), None),
    "MiniMax M3": (template("]<]minimax[>[", "</mm:think>"), {1500: "]<]minimax[>["}, written(
        r"<mm:think>Hm.</mm:think>Well.", 1500, r"<tool_call>\n", 1500, r"<invoke name=\"get_weather\">", 1500, "<city>Rom",
        1500, "</city>", 1500, "<days>3", 1500, "</days>", 1500, r"</invoke>\n", 1500, r"<invoke name=\"noop\">", 1500,
        r"</invoke>\n", 1500, "</tool_call>"), "Hm."),
    "Functionary 3.2": (template(">>>${recipient}"), {}, written(
        rf"all\nWell.>>>get_weather\n{CITY}>>>noop\n{{}}"), None),
    "gpt-oss": (template("<|channel|>analysis"), GPT_OSS, written(
        1500, "analysis", 1501, "Hm.", 1503, 1502, "assistant", 1500, "commentary", 1501, "Well.", 1503, 1502, "assistant",
        1500, "commentary to=functions.get_weather ", 1504, "json", 1501, CITY, 1502,
        "assistant to=functions.noop", 1500, "commentary json", 1501, "{}"), "Hm."),
}
