// etcdload puts small values into etcd with a fixed number of requests outstanding.
//
// It is the compiled counterpart of the quorum benchmark's own load process: the same keys, sizes
// and phases, one reply awaited for each put. It prints one JSON object with latencies in
// milliseconds. Built and run by tests/bench/quorum/voters.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const keyCount = 1000

type report struct {
	Puts    int     `json:"puts"`
	AllPuts int     `json:"all_puts"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
}

func main() {
	endpoints := flag.String("endpoints", "", "host:port,...; the leader first")
	outstanding := flag.Int("outstanding", 1, "puts under way at any time")
	connections := flag.Int("connections", 1, "TCP connections that share them")
	valueBytes := flag.Int("value-bytes", 256, "size of a value")
	warmup := flag.Float64("warmup", 1, "seconds before the measurement")
	seconds := flag.Float64("seconds", 5, "seconds measured")
	probing := flag.Bool("probe", false, "put until one is committed, see probe.py")
	flag.Parse()
	if *probing {
		probe(strings.Split(*endpoints, ","))
		return
	}

	clients := make([]*clientv3.Client, min(*connections, *outstanding))
	for i := range clients {
		client, err := clientv3.New(clientv3.Config{
			Endpoints:   strings.Split(*endpoints, ",")[:1],
			DialTimeout: 5 * time.Second,
		})
		check(err)
		clients[i] = client
	}
	value := strings.Repeat("v", *valueBytes)
	from := time.Now().Add(time.Duration(*warmup * float64(time.Second)))
	until := from.Add(time.Duration(*seconds * float64(time.Second)))
	taken := make([][]time.Duration, *outstanding)
	counts := make([]int, *outstanding)
	var group sync.WaitGroup
	for i := range *outstanding {
		group.Add(1)
		go func() {
			defer group.Done()
			taken[i], counts[i] = load(clients[i%len(clients)], value, i, *outstanding, from, until)
		}()
	}
	group.Wait()
	all := 0
	for _, count := range counts {
		all += count
	}
	check(json.NewEncoder(os.Stdout).Encode(summary(taken, all, *seconds)))
}

// load puts one value after the other; it returns the latencies of those answered in time, and how
// many were answered in all.
func load(
	client *clientv3.Client, value string, first, step int, from, until time.Time,
) ([]time.Duration, int) {
	var taken []time.Duration
	for key, count := first, 0; ; key, count = key+step, count+1 {
		began := time.Now()
		if began.After(until) {
			return taken, count
		}
		_, err := client.Put(context.Background(), fmt.Sprintf("key-%03d", key%keyCount), value)
		check(err)
		if ended := time.Now(); ended.After(from) && ended.Before(until) {
			taken = append(taken, ended.Sub(began))
		}
	}
}

// probe begins when a line comes in; each put that takes long is overtaken by newer ones.
func probe(endpoints []string) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	check(err)
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	committed := make(chan struct{}, 1)
	for {
		go func() {
			if _, err := client.Put(context.Background(), "probe", "x"); err == nil {
				select {
				case committed <- struct{}{}:
				default:
				}
			}
		}()
		select {
		case <-committed:
			fmt.Println("committed")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func summary(taken [][]time.Duration, allPuts int, seconds float64) report {
	var all []time.Duration
	for _, some := range taken {
		all = append(all, some...)
	}
	if len(all) == 0 {
		check(fmt.Errorf("no put was answered"))
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Nanoseconds()) / 1e6
	}
	return report{len(all), allPuts, seconds, at(0.5), at(0.99), at(1)}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdload:", err)
		os.Exit(1)
	}
}
