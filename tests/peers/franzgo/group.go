package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copyRecords copies from topic to topic in transactions that carry the group's offsets, until so
// many records are copied; less than 0 means for ever. Any failure ends it: whoever starts it again
// goes on behind what was committed.
func copyRecords(bootstrap, source, target, countText string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	ctx := context.Background()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup("copy-"+target), kgo.TransactionalID("copy-"+target),
		kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(target))
	if err != nil {
		return err
	}
	defer session.Close()
	for copied := 0; count < 0 || copied < count; {
		records := session.PollRecords(ctx, 10).Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		results := make([]*kgo.Record, len(records))
		for at, one := range records {
			results[at] = &kgo.Record{Key: one.Key, Value: one.Value, Partition: one.Partition}
		}
		err := session.ProduceSync(ctx, results...).FirstErr()
		committed, ended := session.End(ctx, err == nil)
		if ended != nil {
			return ended
		}
		if committed {
			copied += len(records)
		}
	}
	return nil
}

// readInGroup prints the values that a group of one reads, and leaves what it read committed.
func readInGroup(bootstrap, topic, protocol, countText string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup("read-" + topic + "-" + protocol), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.Balancers(kgo.RangeBalancer()),
		kgo.DisableAutoCommit(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	values := []string{}
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(values)
}

type administered struct {
	Committed []int64 `json:"committed"`
	Reset     []int64 `json:"reset"`
	Starts    []int64 `json:"starts"`
	State     string  `json:"state"`
	Listed    bool    `json:"listed"`
	Retention string  `json:"retention"`
	IsLeft    bool    `json:"is_left"`
	IsThere   bool    `json:"is_there"`
	Ended     string  `json:"transaction"`
}

// administer resets and deletes the group of the copy, and changes and deletes the topic it read.
func administer(bootstrap, source, target string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	admin, told := kadm.NewClient(client), administered{}
	defer admin.Close()
	err = errors.Join(
		administerGroup(ctx, admin, "copy-"+target, source, &told),
		administerTopic(ctx, admin, source, &told))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}

func administerGroup(
	ctx context.Context, admin *kadm.Client, group, topic string, told *administered,
) error {
	transactions, err := admin.DescribeTransactions(ctx, group)
	if err != nil {
		return err
	}
	told.Ended = transactions[group].State
	if told.Committed, err = committed(ctx, admin, group, topic); err != nil {
		return err
	}
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	_, told.Listed = listed[group]
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	told.State = described[group].State
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 3, -1)
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	if told.Reset, err = committed(ctx, admin, group, topic); err != nil {
		return err
	}
	if _, err := admin.DeleteGroup(ctx, group); err != nil {
		return err
	}
	listed, err = admin.ListGroups(ctx)
	_, told.IsLeft = listed[group]
	return err
}

func committed(
	ctx context.Context, admin *kadm.Client, group, topic string,
) ([]int64, error) {
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	found := []int64{}
	for partition := int32(0); partition < 2; partition++ {
		one, _ := offsets.Lookup(topic, partition)
		found = append(found, one.At)
	}
	return found, offsets.Error()
}

func administerTopic(
	ctx context.Context, admin *kadm.Client, topic string, told *administered,
) error {
	grown, err := admin.CreatePartitions(ctx, 2, topic)
	if err := errors.Join(err, grown.Error()); err != nil {
		return err
	}
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 5, -1)
	if _, err := admin.DeleteRecords(ctx, offsets); err != nil {
		return err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err := errors.Join(err, starts.Error()); err != nil {
		return err
	}
	for partition := int32(0); partition < 2; partition++ {
		one, _ := starts.Lookup(topic, partition)
		told.Starts = append(told.Starts, one.Offset)
	}
	wanted := "777000"
	changes := []kadm.AlterConfig{{Name: "retention.ms", Value: &wanted}}
	if _, err := admin.AlterTopicConfigs(ctx, changes, topic); err != nil {
		return err
	}
	if err := eventually(func() (bool, error) {
		told.Retention, err = retention(ctx, admin, topic)
		return told.Retention == wanted, err
	}); err != nil {
		return err
	}
	if _, err := admin.DeleteTopics(ctx, topic); err != nil {
		return err
	}
	return eventually(func() (bool, error) {
		topics, err := admin.ListTopics(ctx)
		told.IsThere = topics.Has(topic)
		return !told.IsThere, err
	})
}

// eventually asks until it is so or fails: who answers may be another broker than the one that was
// told to change something, and learn of it later.
func eventually(isSo func() (bool, error)) error {
	for {
		if so, err := isSo(); so || err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func retention(ctx context.Context, admin *kadm.Client, topic string) (string, error) {
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	resource, err := configs.On(topic, nil)
	if err != nil {
		return "", err
	}
	for _, one := range resource.Configs {
		if one.Key == "retention.ms" {
			return one.MaybeValue(), nil
		}
	}
	return "", errors.New("retention.ms is not told")
}
