// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// Judges histories of mutexes by porcupine, a checker of linearizability that knows nothing of this project.
//
//	judge FILE...
//
// A history is a file of one mutex. Each line is one lock: its client, and four times, as whole numbers: when the client
// asked; when it certainly had the lock, first and last; and when it certainly had it no more, or "-" where nobody knows.
// So it took the lock between the first two, and gave it up, or lost it, between the last two. History by history it is
// said whether some order of all these events is one of a mutex. The end of a file name tells what is expected:
// ".history" must be linearizable; of those with ".naive", which are of a recipe that is known to be broken, one must not.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 2 * time.Minute // for each history

type act struct {
	client string // with the number of the lock: each lock is a client of its own
	takes  bool
}

// The state is the client that has the mutex; "" is nobody.
var mutex = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		act := input.(act)
		if act.takes {
			return state == "", act.client
		}
		return state == act.client, ""
	},
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) != 5 {
			return nil, fmt.Errorf("%s:%d: not a client and four times", path, number)
		}
		times := [4]int64{3: math.MaxInt64}
		for i, word := range words[1:] {
			if i == 3 && word == "-" {
				continue
			}
			if times[i], err = strconv.ParseInt(word, 10, 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %v", path, number, err)
			}
		}
		client := fmt.Sprintf("%s #%d", words[0], number)
		history = append(history,
			porcupine.Operation{ClientId: number, Input: act{client, true}, Call: times[0], Return: times[1]},
			porcupine.Operation{ClientId: number, Input: act{client, false}, Call: times[2], Return: times[3]})
	}
	return history, lines.Err()
}

func main() {
	locks, wrong, naive, caught := 0, 0, 0, 0
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		result := porcupine.CheckOperationsTimeout(mutex, history, patience)
		fmt.Printf("%-12s %6d locks  %s\n", map[porcupine.CheckResult]string{porcupine.Ok: "linearizable",
			porcupine.Illegal: "NOT a mutex", porcupine.Unknown: "not decided"}[result], len(history)/2, path)
		if strings.HasSuffix(path, ".naive") {
			naive++
			if result == porcupine.Illegal {
				caught++
			}
			continue
		}
		locks += len(history) / 2
		if result != porcupine.Ok {
			wrong++
		}
	}
	fmt.Printf("%d locks in %d histories, of which %d are not linearizable; of %d naive ones %d are not\n",
		locks, len(os.Args)-1-naive, wrong, naive, caught)
	if wrong > 0 || (naive > 0 && caught == 0) {
		os.Exit(1)
	}
}
