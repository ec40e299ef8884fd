// Judges histories of registers with Porcupine: a JSON object a file, on a line of its own.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	read = iota
	write
	cas
)

const nothing = -1

type input struct {
	key, f, argument, next int
}

type output struct {
	ok, unknown bool
	value       int
}

func step(state, in, out any) (bool, any) {
	value, call, seen := state.(int), in.(input), out.(output)
	switch call.f {
	case read:
		return seen.unknown || seen.value == value, value
	case write:
		return true, call.argument
	}
	next := value
	if value == call.argument {
		next = call.next
	}
	return seen.unknown || seen.ok == (value == call.argument), next
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	found := map[int][]porcupine.Operation{}
	for _, operation := range history {
		key := operation.Input.(input).key
		found[key] = append(found[key], operation)
	}
	parts := make([][]porcupine.Operation, 0, len(found))
	for _, part := range found {
		parts = append(parts, part)
	}
	return parts
}

// A line an operation: key process f argument next ok|fail|info value invoked returned.
func operationOf(line string) porcupine.Operation {
	words := strings.Fields(line)
	number := func(at int) int {
		value, err := strconv.Atoi(words[at])
		if err != nil {
			panic(err)
		}
		return value
	}
	return porcupine.Operation{
		ClientId: number(1),
		Input:    input{number(0), number(2), number(3), number(4)},
		Output:   output{words[5] == "ok", words[5] == "info", number(6)},
		Call:     int64(number(7)),
		Return:   int64(number(8)),
	}
}

func historyOf(path string) []porcupine.Operation {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	history := []porcupine.Operation{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		history = append(history, operationOf(lines.Text()))
	}
	return history
}

// Since the start of this program: getrusage would count what its parent had before.
func peakMemory() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		panic(err)
	}
	return kilobytes * 1024
}

func processorSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	seconds := used.Utime.Sec + used.Stime.Sec
	return float64(seconds) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func main() {
	timeout := flag.Duration("timeout", 30*time.Second, "for each history, then it is Unknown")
	flag.Parse()
	model := porcupine.Model{
		Partition: byKey,
		Init:      func() any { return nothing },
		Step:      step,
		Equal:     func(one, other any) bool { return one == other },
	}
	for _, path := range flag.Args() {
		history := historyOf(path)
		processor, began := processorSeconds(), time.Now()
		verdict := porcupine.CheckOperationsTimeout(model, history, *timeout)
		wall := time.Since(began).Seconds()
		text, err := json.Marshal(map[string]any{
			"verdict": map[porcupine.CheckResult]string{
				porcupine.Ok: "valid", porcupine.Illegal: "invalid", porcupine.Unknown: "unknown",
			}[verdict],
			"wall_s":      wall,
			"processor_s": processorSeconds() - processor,
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
	fmt.Printf("{\"memory_bytes\": %d}\n", peakMemory())
}
