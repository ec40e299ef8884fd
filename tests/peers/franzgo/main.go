// What franz-go does for the tests. Usage:
//
//	peer assigned BOOTSTRAP TOPIC COUNT CODEC     writes records, prints each one read back
//	peer copy BOOTSTRAP SOURCE TARGET COUNT       copies in transactions
//	peer group BOOTSTRAP TOPIC PROTOCOL COUNT     prints the values that a group reads
//	peer administer BOOTSTRAP SOURCE TARGET       prints what it saw of a copy's group and topic
//	peer member BOOTSTRAP GROUP TOPIC PROTOCOL    reads until SIGTERM, prints what it is given
//	peer secured                                  plays the cases of stdin, prints their outcomes
//
// What is printed is JSON, one document a line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type line struct {
	Offset  int64  `json:"offset"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Header  string `json:"header"`
	TimeMs  int64  `json:"time_ms"`
	IsEmpty bool   `json:"is_null"`
}

func main() {
	if err := command(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(name string, given []string) error {
	switch name {
	case "assigned":
		return writeAndRead(given[0], given[1], given[2], given[3])
	case "copy":
		return copyRecords(given[0], given[1], given[2], given[3])
	case "group":
		return readInGroup(given[0], given[1], given[2], given[3])
	case "administer":
		return administer(given[0], given[1], given[2])
	case "member":
		return beMember(given[0], given[1], given[2], given[3])
	case "secured":
		return playSecured()
	}
	return fmt.Errorf("no such command: %s", name)
}

func writeAndRead(bootstrap, topic, countText, codec string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	seeds := kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
	if err := write(ctx, seeds, topic, count, codec); err != nil {
		return err
	}
	return read(ctx, seeds, topic, count)
}

func write(ctx context.Context, seeds kgo.Opt, topic string, count int, codec string) error {
	client, err := kgo.NewClient(seeds,
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = &kgo.Record{
			Key:       []byte(fmt.Sprintf("key %d", number)),
			Value:     []byte(fmt.Sprintf("value %d", number)),
			Headers:   []kgo.RecordHeader{{Key: "number", Value: []byte(strconv.Itoa(number))}},
			Timestamp: time.UnixMilli(1700000000000 + int64(number)),
		}
	}
	records[0].Value = nil
	return client.ProduceSync(ctx, records...).FirstErr()
}

func read(ctx context.Context, seeds kgo.Opt, topic string, count int) error {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}
	client, err := kgo.NewClient(seeds, kgo.ConsumePartitions(start))
	if err != nil {
		return err
	}
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			seen++
			told := line{
				record.Offset, string(record.Key), string(record.Value),
				string(record.Headers[0].Value), record.Timestamp.UnixMilli(), record.Value == nil,
			}
			if err := out.Encode(told); err != nil {
				return err
			}
		}
	}
	return nil
}
