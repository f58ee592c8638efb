// An agent with a loop of its own, on Go's standard library. `agent SETUP` prints its figures.
// Before each call it asks the sidecar what to send.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

type object = map[string]any

var setup struct {
	URL          string   `json:"url"`
	Command      []string `json:"command"`
	Window       int      `json:"window"`
	Turns        int      `json:"turns"`
	Lines        int      `json:"lines"`
	Conversation string   `json:"conversation"`
	System       string   `json:"system"`
	Texts        []string `json:"texts"`
}
var calls io.WriteCloser
var answers *bufio.Reader
var figures = object{"calls": 0, "refused": 0, "fell_open": 0, "handle": "", "recalled": "", "line": ""}

func count(name string) { figures[name] = figures[name].(int) + 1 }

func post(url string, body any) (int, []byte) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	request, _ := http.NewRequest("POST", url, bytes.NewReader(text))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer k")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	raw, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, raw
}

func start(command []string) {
	process := exec.Command(command[0], command[1:]...)
	process.Stderr = os.Stderr
	calls, _ = process.StdinPipe()
	output, _ := process.StdoutPipe()
	answers = bufio.NewReader(output)
	if err := process.Start(); err != nil {
		panic(err)
	}
}

// ask calls the sidecar. If it fails, the answer is empty.
func ask(operation string, fields object) map[string]json.RawMessage {
	fields["op"], fields["conversation"] = operation, setup.Conversation
	json.NewEncoder(calls).Encode(fields)
	line, _ := answers.ReadBytes('\n')
	var answer map[string]json.RawMessage
	json.Unmarshal(line, &answer)
	return answer
}

func fit(body object) any {
	answer := ask("fit", object{"body": body, "options": object{"context_window": setup.Window}})
	if string(answer["managed"]) != "true" {
		count("fell_open")
	}
	var hidden []struct{ Handle, Kind string }
	json.Unmarshal(answer["hidden"], &hidden)
	for _, each := range hidden {
		if figures["handle"] == "" && each.Kind == "mask" {
			figures["handle"] = each.Handle
		}
	}
	if string(answer["changed"]) == "true" {
		return answer["body"]
	}
	return body
}

func report(number int) string {
	rows := make([]string, setup.Lines)
	for row := range rows {
		rows[row] = fmt.Sprintf("line_%d_%d value=%d", number, row, row*number%977)
	}
	return fmt.Sprintf("report %d: %s", number, strings.Join(rows, " "))
}

func tool(name, key, kind string) object {
	parameters := object{"type": "object", "properties": object{key: object{"type": kind}}}
	return object{"type": "function", "function": object{"name": name, "description": name, "parameters": parameters}}
}

var tools = []object{tool("read_report", "number", "integer"), tool("recall", "handle", "string")}
var messages []any

func turn(text string) bool {
	messages = append(messages, object{"role": "user", "content": text})
	for {
		body := fit(object{"model": "gpt-4o", "messages": messages, "tools": tools, "max_tokens": 1000})
		status, raw := post(setup.URL+"/v1/chat/completions", body)
		if status != 200 {
			count("refused")
			answer := ask("refused", object{"status": status, "body": string(raw)})
			if string(answer["retry"]) == "true" {
				continue
			}
			return false
		}
		count("calls")
		ask("reply", object{"reply": json.RawMessage(raw)})
		var reply struct {
			Choices []struct{ Message json.RawMessage }
		}
		json.Unmarshal(raw, &reply)
		messages = append(messages, reply.Choices[0].Message)
		var message struct {
			ToolCalls []struct {
				ID       string
				Function struct{ Arguments string }
			} `json:"tool_calls"`
		}
		json.Unmarshal(reply.Choices[0].Message, &message)
		if len(message.ToolCalls) == 0 {
			return true
		}
		for _, call := range message.ToolCalls {
			var arguments struct{ Number int }
			json.Unmarshal([]byte(call.Function.Arguments), &arguments)
			result := object{"role": "tool", "tool_call_id": call.ID, "content": report(arguments.Number)}
			messages = append(messages, result)
		}
	}
}

func main() {
	if err := json.Unmarshal([]byte(os.Args[1]), &setup); err != nil {
		panic(err)
	}
	start(setup.Command)
	messages = append(messages, object{"role": "system", "content": setup.System})
	for number := 0; number < setup.Turns && turn(setup.Texts[number]); number++ {
	}
	if figures["handle"] != "" {
		var text string
		json.Unmarshal(ask("recall", object{"handle": figures["handle"]})["text"], &text)
		figures["recalled"] = text
		json.Unmarshal(ask("totals", object{"end": true})["line"], &text)
		figures["line"] = text
	}
	out, _ := json.Marshal(figures)
	fmt.Println(string(out))
	calls.Close()
}
