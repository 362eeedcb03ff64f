value.count > 3 or not key.name like 'ann%'
key.name ilike '%ANN%' and key.name not like 'b%'
value.seen < timestamp '2026-01-05 00:00:00+00:00' - interval 30 days
value.seen + interval '1' month > current_timestamp() or value.day + 1 < current_date
value.day - date '2026-01-01' = interval '1' day
value.day < current_date() - interval 30 days or value.day + interval 1 day > current_date()
extract(day from (current_timestamp() - value.seen)) > 30
value.seen - timestamp '2026-01-01 00:00:00' > interval 1 hour
value.count between 1 and 5 and value.count in (1, 2, 3) and value.count <> 4
value.count is not null and value.text is distinct from 'x' and value.count <=> 3
case when value.count = 1 then true when value.ok then false else null end
case value.count when 1 then 'a' else 'b' end = 'b'
if(value.ok, 1, 2) = 1 and nvl(value.text, '') <> '' and coalesce(value.count, 0L) > 0 and ifnull(value.d, 0) > 0
nvl2(value.text, 1, 2) = 1 and nullif(value.count, 3) is null and greatest(value.count, 0L) = least(3L, 9L)
value.count % 2 = 1 and value.count div 2 = 1 and mod(value.count, 2) = 1 and pmod(-1, 3) = 2
-value.count < 0 and +value.count > 0 and abs(value.d) > 1 and sign(value.d) > 0 and value.count * 2 / 3 = 2
value.count & 1 = 1 and value.count | 4 = 7 and value.count ^ 1 = 2 and ~value.count < 0 and bit_count(7) = 3
shiftleft(1, 2) = 4 and shiftright(4, 1) = 2 and value.count << 1 = 6
round(value.d, 1) = 1.5 and bround(value.d) = 2 and floor(value.d) = 1 and ceil(value.d) = 2 and rint(value.d) = 2
sqrt(value.d) > 1 and power(2, 3) = 8 and exp(0) = 1 and ln(1) = 0 and log10(10) = 1 and log(2, 8) > 2 and pi() > 3
value.price + 1 > 9 and value.price * 2.5 > 1 and value.price = 9.99
not isnan(value.d) and nanvl(value.d, 0) = 1.5 and typeof(value.d) = 'double' and isnull(value.text) = false
try_divide(1, 0) is null and try_add(1, 2) = 3 and try_subtract(3, 2) = 1 and try_multiply(2, 3) = 6
cast(value.count as string) = '3' and value.count::int = 3 and try_cast(value.text as int) is null and int('7') = 7
string(value.count) = '3' and bigint(value.d) = 1 and double('1.5') = 1.5 and date('2026-01-02') = value.day
lower(key.name) = 'ann-7' and upper(key.name) = 'ANN-7' and initcap(key.name) = 'Ann-7' and length(key.name) = 5
left(key.name, 3) = 'ann' and right(key.name, 1) = '7' and substr(key.name, 1, 2) = 'an' and reverse('ab') = 'ba'
substring(key.name from 1 for 2) = 'an' and substring_index(key.name, '-', 1) = 'ann' and position('n' in 'an') = 2
trim(key.name) = 'ann-7' and trim(both 'x' from 'xax') = 'a' and ltrim(' a') = 'a' and rtrim('a ') = 'a' and btrim(' a ') = 'a'
startswith(key.name, 'ann') and endswith(key.name, '7') and contains(key.name, '-') and instr(key.name, 'n') = 2
replace(key.name, '-', '') = 'ann7' and translate(key.name, '-', '_') = 'ann_7' and overlay('abc' placing 'X' from 2) = 'aXc'
key.name || '!' = concat(key.name, '!') and concat_ws('-', 'ann', '7') = key.name and locate('n', key.name) = 2
split(key.name, '-')[0] = 'ann' and split_part(key.name, '-', 2) = '7' and regexp_extract(key.name, '(\\d+)', 1) = '7'
key.name rlike '^[a-z]+-[0-9]+$' and regexp_like(key.name, '7$') and key.name regexp '^(ann|bob|eve)-7$'
regexp_replace(key.name, '[0-9]', '#') = 'ann-#' and ascii('a') = 97 and char(97) = 'a' and levenshtein('a', 'b') = 1
md5(key.name) <> '' and sha2(key.name, 256) <> '' and sha1('a') <> '' and crc32('a') > 0 and xxhash64(key) <> 0 and hash(key) <> 0
base64(value.b) = 'Ynl0ZXM=' and decode(value.b, 'utf-8') = 'bytes' and unbase64('YQ==') = encode('a', 'utf-8')
hex(value.b) <> '' and unhex('61') = to_binary('61', 'hex') and conv('ff', 16, 10) = '255' and bin(3) = '11'
get_json_object(value.text, '$.a') = '5' and to_json(key) like '{%'
year(value.day) = 2026 and month(value.seen) = 1 and day(value.day) = 2 and quarter(value.day) = 1 and hour(value.seen) = 3
extract(year from value.seen) = 2026 and date_part('minute', value.seen) = 4 and second(value.seen) = 5 and minute(value.seen) = 4
dayofweek(value.day) = 6 and weekday(value.day) = 4 and dayofyear(value.day) = 2 and weekofyear(value.day) = 1
date_add(value.day, 1) > value.day and date_sub(value.day, 1) < value.day and datediff(value.day, date '2026-01-01') = 1
add_months(value.day, 1) > value.day and months_between(value.day, date '2025-12-02') = 1 and last_day(value.day) > value.day
next_day(value.day, 'MO') > value.day and trunc(value.day, 'YEAR') < value.day and date_trunc('day', value.seen) < value.seen
date_format(value.seen, 'yyyy-MM-dd') = '2026-01-02' and to_date('2026-01-02') = value.day and to_date('02.01.2026', 'dd.MM.yyyy') = value.day
to_timestamp('2026-01-02 03:04:05') = value.seen and to_timestamp('02.01.2026', 'dd.MM.yyyy') < value.seen and try_to_timestamp('x') is null
unix_timestamp(value.seen) > 0 and from_unixtime(0) < 'x' and timestamp_seconds(0) < value.seen and unix_millis(value.seen) > 0
timestamp_millis(0) < value.seen and timestamp_micros(0) < value.seen and unix_date(value.day) > 0 and unix_micros(value.seen) > 0
make_date(2026, 1, 2) = value.day and make_timestamp(2026, 1, 2, 3, 4, 5) = value.seen and now() > value.seen
from_utc_timestamp(value.seen, 'Europe/Berlin') > value.seen and to_utc_timestamp(value.seen, 'Europe/Berlin') < value.seen
value.seen < now() - make_dt_interval(30) and value.seen < current_timestamp - interval 2 hours * 3
size(value.tags) = 2 and cardinality(value.m) = 1 and value.tags[0] = 'x' and element_at(value.tags, -1) = 'y' and get(value.tags, 5) is null
array_contains(value.tags, 'x') and array_position(value.tags, 'y') = 2 and array_join(value.tags, ',') = 'x,y' and array_size(value.ns) = 2
array_max(value.ns) = 3 and array_min(value.ns) = 1 and sort_array(value.ns)[0] = 1 and array_distinct(value.ns) = value.ns
arrays_overlap(value.tags, array('x')) and size(array_union(value.ns, array(7))) = 3 and size(array_except(value.ns, array(3))) = 1
array_remove(value.ns, 3) = array(1) and array_append(value.ns, 9)[2] = 9 and slice(value.ns, 1, 1) = array(3) and array_intersect(value.ns, array(1)) = array(1)
exists(value.tags, t -> t = 'x') and forall(value.ns, n -> n > 0) and size(filter(value.ns, n -> n > 1)) = 1
transform(value.tags, t -> t || '!')[0] = 'x!' and flatten(array(value.ns, value.ns)) = array(3, 1, 3, 1) and array_compact(value.ns) = value.ns
value.m['a'] = 1 and map_keys(value.m)[0] = 'a' and map_values(value.m)[0] = 1 and map_contains_key(value.m, 'a') and try_element_at(value.m, 'z') is null
size(map_filter(value.m, (k, v) -> v > 0)) = 1 and size(map_entries(value.m)) = 1 and map_concat(value.m, map('b', 2))['b'] = 2
key = named_struct('id', 17L, 'name', 'ann-7') and struct(1, 'a').col1 = 1 and (1, 'a') = struct(1, 'a')
key.`id` = 17 and `value`.`count` = 3L and partition_id = 0 and value['count'] = 3
key.name in ('ann-7', 'it''s', "x") and true and value.ok
sin(0) = 0 and cos(0) = 1 and tan(0) = 0 and cot(1) > 0 and asin(0) = 0 and acos(1) = 0 and atan(0) = 0 and atan2(0, 1) = 0
degrees(pi()) = 180 and radians(180) > 3 and hypot(3, 4) = 5 and cbrt(27) = 3 and pow(2, 2) = 4 and e() > 2 and expm1(0) = 0
log1p(0) = 0 and log2(8) = 3 and signum(-2) < 0 and negative(1) < 0 and positive(1) > 0 and ceiling(1.2) = 2 and width_bucket(5, 0, 10, 5) = 3
bit_get(5, 0) = 1 and getbit(5, 1) = 0 and shiftrightunsigned(4, 1) = 2 and bit_length('a') = 8 and octet_length('a') = 1 and try_mod(1, 0) is null
lcase('A') = 'a' and ucase('a') = 'A' and len('a') = 1 and char_length('a') = 1 and character_length('a') = 1 and chr(97) = 'a' and sha('a') <> ''
find_in_set('a', 'b,a') = 2 and soundex('ann') = 'A500' and equal_null(null, null) and isnotnull(value.text) and nullifzero(0) is null and zeroifnull(null) = 0
to_number('12', '99') = 12 and try_to_number('x', '99') is null and try_to_binary('zz', 'hex') is null and decode(1, 1, 'a', 'b') = 'a'
boolean('true') and binary('a') = cast('a' as binary) and decimal('1') = 1 and float('1') = 1 and smallint('1') = 1 and tinyint('1') = 1 and timestamp('2026-01-02 03:04:05') = value.seen
try_to_date('x') is null and date_diff(value.day, value.day) = 0 and dateadd(value.day, 1) > value.day and date_from_unix_date(0) < value.day and curdate() > value.day
dayofmonth(value.day) = 2 and dayname(value.day) = 'Fri' and monthname(value.day) = 'Jan' and datepart('year', value.day) = 2026 and current_date() > value.day
to_timestamp_ltz('2026-01-02 03:04:05') = value.seen and to_timestamp_ntz('2026-01-02 03:04:05') is not null and localtimestamp() > timestamp_ntz '2026-01-01 00:00:00'
make_timestamp_ltz(2026, 1, 2, 3, 4, 5) = value.seen and make_timestamp_ntz(2026, 1, 2, 3, 4, 5) is not null and unix_seconds(value.seen) = to_unix_timestamp(value.seen)
value.seen + make_interval(0, 0, 0, 1) > value.seen and value.day + make_ym_interval(1) > value.day and convert_timezone('UTC', 'Europe/Berlin', timestamp_ntz '2026-01-01 00:00:00') is not null
map_from_arrays(array('a'), array(1))['a'] = 1 and map_from_entries(array(struct('a', 1)))['a'] = 1 and array_prepend(value.ns, 9)[0] = 9
transform_keys(value.m, (k, v) -> k || 'x')['ax'] = 1 and transform_values(value.m, (k, v) -> v + 1)['a'] = 2
